"""Memory and communication of layouts: the sources' cases, with the values that are right."""

from dataclasses import replace

import pytest

from tests.lab.advice.clusters import node, placed, racks
from tests.rows import each
from wirewatch.core.types import Absent
from wirewatch_lab.advice.placement.cluster import ClusterNode
from wirewatch_lab.advice.placement.jobs import PlacementJob
from wirewatch_lab.advice.placement.layouts import SPINE_SECONDS, Workload, layout_cost
from wirewatch_lab.advice.placement.space import Level, space_of
from wirewatch_lab.advice.shapes import SHAPES

LLAMA = next(one for one in SHAPES if one.name == "llama-3-70b")
MIB = 1 << 20


def seconds(
    nodes: list[ClusterNode], job: PlacementJob, workload: Workload, reach: Level = Level.DOMAIN
) -> tuple[float, float]:
    """Tensor-parallel and pipeline seconds."""
    cost = layout_cost(space_of(nodes), placed(nodes, job, reach=reach)[0], workload)
    assert not isinstance(cost.tensor, Absent), cost.tensor
    assert not isinstance(cost.pipeline, Absent), cost.pipeline
    return cost.tensor, cost.pipeline


@each(
    ("tp", "pp", "gb"),
    [(1, 1, 141.1), (2, 1, 70.6), (8, 1, 17.6), (1, 2, 70.6), (4, 4, 9.1), (1, 3, 48.3)],
)
def test_seventy_billion_parameters_in_bf16_are_140_gb(tp: int, pp: int, gb: float) -> None:
    """The first stage has the embedding, the last the output matrix; of 80 layers in three one has 27."""
    assert Workload(LLAMA, headroom=0).memory(tp, pp) / 1e9 == pytest.approx(gb, abs=0.1)


def test_adam_takes_sixteen_bytes_a_parameter_and_what_is_kept_free_comes_on_top() -> None:
    assert Workload(LLAMA, training=True, headroom=0).memory(1, 1) == pytest.approx(16 * LLAMA.parameters)
    assert Workload(LLAMA, headroom=0.5).memory(1, 1) == pytest.approx(4 * LLAMA.parameters)


def test_keys_and_values_are_split_over_their_heads_alone() -> None:
    """80 layers x 2 x 8 heads x 128 x 2 bytes = 327,680 a token; TP 16 keeps as much a GPU as TP 8."""
    without, kept = Workload(LLAMA, headroom=0), Workload(LLAMA, headroom=0, kv_tokens=10_000)
    for tp, share in ((1, 1), (8, 8), (16, 8)):
        more = kept.memory(tp, 1) - without.memory(tp, 1)
        assert more == pytest.approx(327_680 * 10_000 / share)


def test_a_model_is_cut_by_whole_heads_and_layers() -> None:
    work = Workload(LLAMA)
    assert work.objection(8, 80) == ""
    assert work.objection(6, 1) == "TP 6 does not divide the 64 attention heads of llama-3-70b"
    assert work.objection(1, 81) == "PP 81 is more than the 80 layers of llama-3-70b"
    unknown = Workload(replace(LLAMA, heads=0, parameters=7e9))
    assert unknown.objection(1, 81) == ""


def test_a_step_has_twice_the_all_reduces_of_a_token_and_gradients() -> None:
    nodes = racks(2)
    work = Workload(LLAMA, training=True, tokens=4096)
    cost = layout_cost(space_of(nodes), placed(nodes, PlacementJob(8, 1, 2))[0], work)
    assert (cost.messages, cost.message_bytes) == (320, 64 * MIB)
    decode = layout_cost(space_of(nodes), placed(nodes, PlacementJob(8, 1, 2))[0], Workload(LLAMA))
    assert (decode.messages, decode.message_bytes, decode.data) == (160, 16 * 1024, 0.0)


def test_eight_gpus_over_two_islands_are_slower_than_four() -> None:
    """Source 000, section 6: the eight-GPU job slower than four, at what prefill sends."""
    work = Workload(LLAMA, tokens=4096)
    box = [node("a", 4, 4)]
    eight, _ = seconds(box, PlacementJob(8), work, Level.NODE)
    four, _ = seconds(box, PlacementJob(4, 1, 2), work)
    assert eight > 5 * four


def test_two_nodes_are_slower_than_a_replica_on_each() -> None:
    """Source 000, its exercise: TP 8 over two nodes with four free GPUs each, or TP 4 on each."""
    work = Workload(LLAMA, tokens=4096)
    nodes = [node(name, busy=(4, 5, 6, 7)) for name in ("dgx1", "dgx2")]
    wide, _ = seconds(nodes, PlacementJob(8), work, Level.CLUSTER)
    four, _ = seconds(nodes, PlacementJob(4, 1, 2), work)
    assert wide > four


def test_another_rack_is_not_ten_times_slower() -> None:
    """Source 002 has 5.2 and 5.5 ms for 256 MB, and calls it 10x: its 3 us of latency give neither."""
    work = Workload(LLAMA, tokens=16384)
    assert LLAMA.message(16384, 2) == 256 * MIB
    near, _ = seconds(racks(2), PlacementJob(16), work, Level.CLUSTER)
    far, _ = seconds(racks(1, 1), PlacementJob(16), work, Level.CLUSTER)
    assert far - near == pytest.approx(160 * 2 * SPINE_SECONDS)
    assert far / near < 1.01


def test_a_pipeline_over_racks_takes_microseconds_more() -> None:
    """Source 002's `(racks - 1) * 3 us`, but of each message that crosses, not of a bubble."""
    work = Workload(LLAMA)
    _, near = seconds(racks(4), PlacementJob(8, 4), work)
    _, far = seconds(racks(2, 2), PlacementJob(8, 4), work)
    assert far - near == pytest.approx(SPINE_SECONDS)


def test_what_is_not_known_is_said() -> None:
    nodes = [node("a", product="X1"), node("b", product="X1")]
    cost = layout_cost(space_of(nodes), placed(nodes, PlacementJob(8, 2))[0], Workload(LLAMA))
    assert isinstance(cost.total, Absent)
    assert "no data of a product" in str(cost.total)


@pytest.mark.parametrize(
    ("workload", "unit"),
    [
        (Workload(LLAMA), "token"), (Workload(LLAMA, tokens=2), "pass"),
        (Workload(LLAMA, training=True), "step"),
        (Workload(LLAMA, training=True, tokens=2), "step"),
    ],
)  # fmt: skip
def test_a_cost_is_of_a_token_a_pass_or_a_step(workload: Workload, unit: str) -> None:
    assert workload.unit == unit


def test_a_single_gpu_reduces_nothing_even_if_nothing_is_known_of_it() -> None:
    nodes = [node("a", product="X1")]
    cost = layout_cost(space_of(nodes), placed(nodes, PlacementJob(1))[0], Workload(LLAMA))
    assert (cost.tensor, cost.pipeline, cost.data, cost.total) == (0.0, 0.0, 0.0, 0.0)


def test_stages_in_one_domain_send_over_its_wires_and_others_over_the_network() -> None:
    """Without ports nothing is known between nodes."""
    near, apart = [node("a", ports="")], [node("a", 4, ports=""), node("b", 4, ports="")]
    inside = layout_cost(space_of(near), placed(near, PlacementJob(4, 2))[0], Workload(LLAMA))
    assert isinstance(inside.pipeline, float)
    between = layout_cost(space_of(apart), placed(apart, PlacementJob(4, 2))[0], Workload(LLAMA))
    assert isinstance(between.pipeline, Absent)


def test_gradients_of_replicas_in_several_racks_take_another_hop() -> None:
    work = Workload(LLAMA, training=True, tokens=4096)
    near, far = (
        layout_cost(space_of(nodes), placed(nodes, PlacementJob(8, 1, 2))[0], work).data
        for nodes in (racks(2), racks(1, 1))
    )
    assert not isinstance(near, Absent)
    assert not isinstance(far, Absent)
    assert far - near == pytest.approx(2 * SPINE_SECONDS)


def test_a_group_over_parts_of_several_cells_has_as_many_gpus_as_it_takes() -> None:
    nodes = [node(f"{rack}{n}", 4, product="GB200", fabric=rack, ports="") for rack in "de" for n in (1, 2)]
    (job,) = placed(nodes, PlacementJob(10), reach=Level.CLUSTER)
    (stage,) = job.replicas[0].stages
    assert sorted(stage.shares) == [2, 8]
    assert len({(gpu.node.name, gpu.index) for gpu in stage.gpus}) == 10


@each(
    ("nodes", "levels"),
    [
        ([node("a", rack="r1", leaf="l1"), node("b", rack="r2", leaf="l2")], (Level.LEAF, Level.RACK)),
        ([node("a", rack="r1", leaf="l1"), node("b", rack="r2", leaf="l1")], (Level.RACK, Level.LEAF)),
        ([node("a", rack="r1", leaf="l1"), node("b", rack="r1", leaf="l2")], (Level.LEAF, Level.RACK)),
        (
            [
                node("a", rack="r1", leaf="l1"),
                node("b", rack="r2", leaf="l1"),
                node("c", rack="r2", leaf="l2"),
            ],
            (Level.LEAF, Level.RACK),
        ),
        (
            [node("a", rack="r1", leaf="l1"), *(node(name, rack=name) for name in "cd")],
            (Level.LEAF, Level.RACK),
        ),
        (
            [node("a", rack="r1", leaf="l1"), *(node(name, leaf=name) for name in "cd")],
            (Level.LEAF, Level.RACK),
        ),
        ([node("a", rack="r1")], (Level.RACK,)),
        ([node("a", leaf="l1")], (Level.LEAF,)),
        ([node("a")], ()),
    ],
)
def test_of_leafs_and_racks_the_narrower_come_first(
    nodes: list[ClusterNode], levels: tuple[Level, ...]
) -> None:
    assert space_of(nodes).levels == (Level.DOMAIN, Level.NODE, *levels, Level.CLUSTER)


def test_domains_are_named_by_their_node_and_islands() -> None:
    nodes = [node("a"), node("b", 4, 4), node("c", 1, 2), node("d", 4, product="GB200", fabric="f", ports="")]
    assert [one.name for one in space_of(nodes).domains] == [
        "a", "b GPUs 0-3", "b GPUs 4-7", "c GPU 0", "c GPUs 1-2", "domain f",
    ]  # fmt: skip
