"""Training steps: the sources' worked examples, memory, and the bucket that is large enough."""

from dataclasses import replace

import pytest

from tests.lab.advice.test_tokens import measured, shape
from tests.rows import each
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.cost.training import TORCH_BUCKET, Trained, bucket, expert_group, schemes
from wirewatch_lab.advice.described import described
from wirewatch_lab.advice.shapes import TRAINING_BYTES, plain_shape
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Estimate, Ranks

KIB, MIB = 1 << 10, 1 << 20
SEVENTY = plain_shape(0, 0, 70e9, None, 0, 0)


def test_140_gb_of_gradients_are_245_gb_by_ddp_and_367_by_fsdp() -> None:
    one = Trained(SEVENTY, 2, 8, 1, 8192)
    sends = {found.scheme.partition(" ")[0]: found.sends for found in schemes(one)}
    assert one.gradients == 140e9
    assert sends == {"DDP": 245e9, "ZeRO-2": 245e9, "ZeRO-3": 367.5e9}


def test_what_leaves_a_node_is_what_nccl_lets_cross() -> None:
    """Of 140 GB over two nodes of eight: an all-reduce by trees, all-gather and reduce-scatter by rings."""
    crosses = {
        found.scheme.partition(" ")[0]: found.crosses for found in schemes(Trained(SEVENTY, 2, 16, 2, 1))
    }
    assert crosses["DDP"] == 2 * 140e9 / 2 / 8
    assert crosses["ZeRO-2"] == pytest.approx(2 * 140e9 * 15 / 16 / 8)
    assert crosses["ZeRO-3"] == pytest.approx(3 * 140e9 * 15 / 16 / 8)


def test_adam_keeps_sixteen_bytes_a_parameter_in_mixed_precision_and_in_32_bits() -> None:
    assert 70e9 * TRAINING_BYTES == 1.12e12
    assert 7e9 * 4 * 4 == 7e9 * TRAINING_BYTES == 112e9
    for width in (2, 4):
        ddp, zero2, zero3 = schemes(Trained(SEVENTY, width, 8, 1, 1))
        assert ddp.memory == 1.12e12
        assert zero3.memory == 140e9
        assert zero2.memory == pytest.approx(70e9 * (width + (16 - width) / 8))


def test_layers_send_activations_and_experts_tokens() -> None:
    mixed = shape("mixtral-8x7b")
    found = {one.scheme: one for one in schemes(Trained(mixed, 2, 8, 1, 4096))}
    hidden = 4096 * 4096 * 2
    assert found["PP"].sends == 2 * hidden
    assert found["TP"].sends == 4 * 32 * hidden * 1.75
    assert found["EP"].sends == 4 * 32 * 2 * hidden * 7 / 8
    assert "EP" not in {one.scheme for one in schemes(Trained(shape("llama-3-8b"), 2, 8, 1, 4096))}


@each(
    ("ranks", "nodes", "group"),
    [(8, 1, 8), (16, 2, 8), (4, 1, 4), (12, 3, 4), (6, 1, 2), (3, 1, 1), (2, 2, 2)],
)
def test_experts_are_shared_by_no_more_gpus_than_there_are_experts(
    ranks: int, nodes: int, group: int
) -> None:
    """8 experts of Mixtral, equally many on each GPU."""
    one = Trained(shape("mixtral-8x7b"), 2, ranks, nodes, 4096)
    experts = next(found for found in schemes(one) if found.scheme == "EP")
    assert expert_group(one) == group
    assert experts.sends == 4 * 32 * 2 * 4096 * 4096 * 2 * (group - 1) / group
    assert experts.crosses == (experts.sends if (ranks, nodes) == (2, 2) else 0)
    assert experts.objection == ("8 experts cannot be shared out over 3 GPUs" if ranks == 3 else "")


def test_a_model_is_not_split_over_more_gpus_than_it_has_layers_and_heads_for() -> None:
    many = {one.scheme: one.objection for one in schemes(Trained(shape("llama-3-70b"), 2, 256, 32, 1))}
    assert many["PP"] == "80 layers are fewer than 256 stages"
    assert many["TP"] == "TP 256 does not divide the 64 heads"
    assert not many["DDP"]
    three = {one.scheme: one.objection for one in schemes(Trained(shape("llama-3-70b"), 2, 3, 1, 1))}
    assert (three["PP"], three["TP"]) == ("", "TP 3 does not divide the 64 heads")


def test_between_nodes_the_gradients_cross_once_by_levels() -> None:
    ddp = schemes(Trained(plain_shape(0, 0, 0.5e9, None, 0, 0), 2, 16, 2, 1))[0]
    assert ddp.crosses == 125e6  # Of 1 GB, on 2 nodes of 8
    alone = schemes(Trained(plain_shape(0, 0, 0.5e9, None, 0, 0), 2, 2, 2, 1))[0]
    assert alone.crosses == alone.sends == 1e9


def test_a_bucket_is_large_enough_at_nine_tenths_of_the_plateau() -> None:
    """A floor of 50 us, and 300 GB/s beyond it."""
    machine = measured("8xH100", {8: {"eager": 50e-6}})
    best = bucket(CollectiveTimes(machine), Ranks(8), 1024 * MIB)
    assert not isinstance(best, Absent)
    assert best.floor == pytest.approx(50e-6, rel=0.01)
    assert 0.9 * best.plateau <= 1.75 * best.size / best.exposed <= best.plateau
    assert best.size in {128 * MIB, 256 * MIB}
    assert best.torch_busbw < 0.9 * best.plateau
    assert best.buckets == 1024 * MIB / best.size
    assert best.seconds == pytest.approx(best.buckets * best.exposed)
    assert best.torch_seconds > best.seconds
    small = bucket(CollectiveTimes(machine), Ranks(8), 1000)
    assert not isinstance(small, Absent)
    assert small.buckets == 1


def test_without_times_there_is_no_bucket() -> None:
    assert isinstance(bucket(CollectiveTimes(described("72xGB200")), Ranks(73), 1e9), Absent)


@pytest.mark.parametrize(
    ("experts", "ranks", "nodes", "group"), [(6, 12, 3, 2), (8, 16, 2, 8), (16, 16, 2, 16), (12, 12, 3, 12)]
)
def test_a_group_of_experts_fills_nodes_or_a_part_of_one(
    experts: int, ranks: int, nodes: int, group: int
) -> None:
    """Of 6 experts over three nodes of four: neither 6 nor 3 fill a node, and 4 do not divide them."""
    model = replace(shape("mixtral-8x7b"), experts=experts)
    assert expert_group(Trained(model, 2, ranks, nodes, 4096)) == group


def test_a_bucket_whose_times_are_not_known_is_not_known() -> None:
    class Times(CollectiveTimes):
        """Times of which one size is not known."""

        def __init__(self, unknown: int) -> None:
            super().__init__(measured("8xH100", {8: {"eager": 50e-6}}))
            self.unknown = unknown

        def estimate(
            self, op: str, span: Ranks, size_bytes: float, launch: str = "eager", *, one_process: bool = False
        ) -> Estimate | Absent:
            if size_bytes == self.unknown:
                return Absent(Why.MISSING, f"{size_bytes:.0f}")
            return super().estimate(op, span, size_bytes, launch, one_process=one_process)

    for size in (8, 8 << 30, TORCH_BUCKET, 64 * KIB, 256 * KIB):
        found = bucket(Times(size), Ranks(8), 1e9)
        assert isinstance(found, Absent)
        assert found.detail == f"{size}"
    assert not isinstance(bucket(Times(1 << 30), Ranks(8), 1e9), Absent)
