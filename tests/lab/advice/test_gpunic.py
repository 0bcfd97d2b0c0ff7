"""GPUs and their RDMA ports: known machines, faults, odd machines, and what holds for all."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.lab.advice.nearby import DGX_H100, dgx_h100, node
from tests.node.busbw.ports import GEN4, HDR, NDR, RDMA_100G, port
from wirewatch.core.hostlink import Pcie
from wirewatch.core.probe import RdmaPort
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.gpunic import mapping
from wirewatch_lab.advice.gpunic.locality import VIRTUAL, Locality
from wirewatch_lab.advice.gpunic.mapping import (
    MOST,
    Cost,
    GpuNicMap,
    NicsOfGpu,
    PortOfGpu,
    cost,
    make_cards,
    map_nics,
    plan,
)
from wirewatch_lab.advice.gpunic.settings import CpuBinding, job_settings, slurm_binding


def mapped(near: Locality, gpu_rate: float | None = None) -> GpuNicMap:
    found = map_nics(near, gpu_rate)
    assert not isinstance(found, Absent)
    return found


def devices(found: GpuNicMap) -> list[list[str]]:
    return [[one.port.device for one in seat.ports] for seat in found.gpus]


def test_on_a_dgx_h100_gpu_n_is_not_near_mlx5_n() -> None:
    found = mapped(dgx_h100())
    assert devices(found) == [[f"mlx5_{n}"] for n in DGX_H100]
    assert {one.path for seat in found.gpus for one in seat.ports} == {"PXB"}
    assert [name for name, _ in found.left_out] == ["mlx5_1:1", "mlx5_2:1", "mlx5_7:1", "mlx5_8:1"]
    assert {why for _, why in found.left_out} == {"others are nearer to every GPU: storage or management"}


def test_a_port_that_is_down_costs_its_gpu_and_the_one_that_shares() -> None:
    found = mapped(dgx_h100(mlx5_0={"state": "down"}))
    assert devices(found)[:2] == [["mlx5_3"], ["mlx5_3"]]  # not a storage port, though one is as near
    assert found.gpus[0].loss == "mlx5_0:1: down; NODE instead of PXB, 25.0 instead of 50.0 GB/s"
    assert found.gpus[1].loss == "it shares with a GPU whose own port is lost; 25.0 instead of 50.0 GB/s"
    assert not any(seat.loss for seat in found.gpus[2:])
    assert ("mlx5_0:1", "down") in found.left_out


def test_a_storage_port_that_is_down_costs_no_gpu_anything() -> None:
    assert not any(seat.loss for seat in mapped(dgx_h100(mlx5_1={"state": "down"})).gpus)


def test_another_network_in_place_of_one_that_is_down_is_a_loss() -> None:
    near = [port(n, ["PIX" if n == gpu else "NODE" for gpu in range(2)], state="down") for n in range(2)]
    found = mapped(node([*near, port(7, ["NODE", "NODE"], layer="Ethernet")]))
    assert (found.layer, devices(found)) == ("Ethernet", [["mlx5_7"], ["mlx5_7"]])
    assert found.gpus[0].loss == (
        "mlx5_0:1: down; Ethernet instead of InfiniBand, NODE instead of PIX, 25.0 instead of 50.0 GB/s"
    )


def test_gpus_that_share_a_nic_share_its_rate() -> None:
    ports = [port(n, ["PIX" if gpu // 2 == n else "NODE" for gpu in range(8)]) for n in range(4)]
    found = mapped(node(ports))
    assert devices(found) == [[f"mlx5_{gpu // 2}"] for gpu in range(8)]
    assert {seat.share for seat in found.gpus} == {NDR / 2}


def test_inside_the_switches_an_idle_nic_is_better_than_a_shared_one() -> None:
    found = mapped(node([port(0, ["PIX", "PIX"]), port(1, ["PXB", "PXB"])]))
    assert devices(found) == [["mlx5_0"], ["mlx5_1"]]


def test_more_nics_than_gpus_are_dealt_out_evenly() -> None:
    ports = [port(n, ["PIX" if n // 2 == gpu else "SYS" for gpu in range(2)]) for n in range(4)]
    found = mapped(node([*ports, port(9, ["NODE", "NODE"])]))
    assert devices(found) == [["mlx5_0", "mlx5_1"], ["mlx5_2", "mlx5_3"]]
    assert found.gpus[0].share == 2 * NDR
    assert [name for name, _ in found.left_out] == ["mlx5_9:1"]


def test_one_nic_too_many_is_nobody_s() -> None:
    found = mapped(node([port(n, ["PIX", "PIX"]) for n in range(3)]))
    assert devices(found) == [["mlx5_0"], ["mlx5_1"]]
    assert found.left_out == (("mlx5_2:1", "as good, and not enough for one more of each GPU"),)


def test_the_two_ports_of_a_card_share_its_slot() -> None:
    two = [port(n, ["PIX", "PIX"], card="0000:10:00", device=f"mlx5_{n}", pcie=GEN4) for n in range(2)]
    found = mapped(node(two))
    assert devices(found) == [["mlx5_0"], ["mlx5_1"]]
    share = found.gpus[0].share
    assert share == pytest.approx(31.5e9 / 2, rel=0.01)
    assert found.remarks == ("mlx5_0:1, mlx5_1:1: PCIe 4 x16 lets 31.5 of the ports' 100.0 GB/s through",)


def test_gpus_go_to_other_cards_before_they_share_one() -> None:
    two = [port(n, ["PIX", "PIX"], card="0000:10:00") for n in range(2)]
    found = mapped(node([*two, port(2, ["PIX", "PIX"])]))
    assert {seat.ports[0].port.card for seat in found.gpus} == {"0000:10:00", "0000:12:00"}


def test_the_layer_of_the_nearest_ports_is_the_network() -> None:
    near = [port(n, ["PIX" if n == gpu else "NODE" for gpu in range(2)], layer="Ethernet") for n in range(2)]
    found = mapped(node([*near, port(7, ["NODE", "NODE"])]))
    assert (found.layer, devices(found)) == ("Ethernet", [["mlx5_0"], ["mlx5_1"]])
    assert found.left_out[0][1].startswith("link layer InfiniBand, those of the GPUs are Ethernet")


def test_slow_ports_as_near_as_others_are_for_something_else() -> None:
    ports = [port(n, ["NODE"] * 4) for n in range(4)] + [port(8, ["NODE"] * 4, rate=RDMA_100G)]
    found = mapped(node(ports))
    assert devices(found) == [["mlx5_0"], ["mlx5_1"], ["mlx5_2"], ["mlx5_3"]]
    assert found.left_out == (("mlx5_8:1", "100 Gb/s, others have 400 Gb/s: storage or management"),)


def test_a_gpu_keeps_a_port_of_its_own_at_half_the_rate() -> None:
    ports = [
        port(n, ["PIX" if n == gpu else "NODE" for gpu in range(2)], rate=(HDR, NDR)[n]) for n in range(2)
    ]
    assert [seat.share for seat in mapped(node(ports)).gpus] == [HDR, NDR]


def test_a_port_that_is_slow_for_its_place_is_not_the_nearest() -> None:
    own = [port(n, ["PIX" if n == gpu else "NODE" for gpu in range(4)]) for n in range(4)]
    slow = [replace(own[0], rate=25e9 / 8), *own[1:]]
    found = mapped(node(slow))
    assert devices(found)[0] == ["mlx5_1"]
    assert found.left_out == (("mlx5_0:1", "3.1 GB/s, where others have 50.0"),)
    narrow = node([replace(own[0], pcie=Pcie(5, 1)), *own[1:]], slots={"mlx5_0": Pcie(5, 16)})
    found = mapped(narrow)
    assert found.left_out == (("mlx5_0:1", "3.9 GB/s over PCIe 5 x1, where others have 50.0"),)
    assert found.gpus[0].loss.startswith("mlx5_0:1: its PCIe link runs low (PCIe 5 x1); NODE instead of PIX")


def test_one_fast_port_makes_the_others_no_slow_ones() -> None:
    own = [port(n, ["PIX" if n == gpu else "NODE" for gpu in range(4)], rate=RDMA_100G) for n in range(4)]
    found = mapped(node([*own, port(9, ["NODE"] * 4, rate=2 * NDR)]))
    assert devices(found) == [[f"mlx5_{n}"] for n in range(4)]


@pytest.mark.parametrize("path", ["", "NODE"])
def test_where_all_paths_are_alike_nothing_is_claimed(path: str) -> None:
    found = mapped(node([port(n, [path] * 4) for n in range(4)]))
    assert not found.visible
    assert not any(seat.loss for seat in found.gpus)
    assert devices(found) == [["mlx5_0"], ["mlx5_1"], ["mlx5_2"], ["mlx5_3"]]


def test_no_port_is_no_fault() -> None:
    found = mapped(node([], 4))
    assert (found.layer, found.left_out, found.remarks) == ("", (), ())
    assert all(seat.ports == () and seat.share is None and not seat.loss for seat in found.gpus)


def test_what_cannot_be_read_is_not_used() -> None:
    unknown = [
        port(0, ["PIX"], state=""), port(1, ["PIX"], layer=""), port(2, ["PIX"], rate=0.0),
        port(3, ["PIX"], state="init"),
    ]  # fmt: skip
    found = mapped(node(unknown, others=(("mlx5_4", VIRTUAL),)))
    assert devices(found) == [[]]
    assert [why for _, why in found.left_out] == [
        "its state is not known", "its link layer is not known", "its rate is not known", "init", VIRTUAL,
    ]  # fmt: skip


def test_a_gpu_s_own_slot_limits_its_share() -> None:
    assert mapped(node([port(0, ["PIX"])]), 31.5e9).gpus[0].share == 31.5e9


def test_less_and_more_than_a_node_is_refused() -> None:
    assert isinstance(map_nics(node([port(0, [])])), Absent)
    assert isinstance(map_nics(node([port(n, ["PIX"]) for n in range(MOST + 1)])), Absent)


PATHS = st.sampled_from(("PIX", "PXB", "PHB", "NODE", "SYS", ""))
RATES = st.sampled_from((NDR, HDR, RDMA_100G))


@st.composite
def nodes(draw: st.DrawFn, most: int = 4) -> Locality:
    """Up to `most` GPUs and ports, some of a card, with any paths and rates; most ports are up."""
    count = draw(st.integers(1, most))
    ports: list[RdmaPort] = []
    for number in range(draw(st.integers(1, most))):
        paths = draw(st.lists(PATHS, min_size=count, max_size=count))
        state = draw(st.sampled_from(("active", "active", "active", "down")))
        layer = draw(st.sampled_from(("InfiniBand", "InfiniBand", "InfiniBand", "Ethernet")))
        if draw(st.booleans()) and ports:
            same = ports[-1]
            ports.append(replace(same, device=f"mlx5_{number}", rate=draw(RATES), state=state))
        else:
            pcie = draw(st.sampled_from((GEN4, None)))
            made = port(number, paths, rate=draw(RATES), state=state, layer=layer)
            ports.append(replace(made, pcie=pcie) if pcie else made)
    return node(ports, count)


def usable(near: Locality, layer: str) -> list[RdmaPort]:
    return [one for one in near.ports if one.layer == layer and one.state == "active"]


def best(near: Locality) -> Cost | None:
    """The cost of the best plan over all layers."""
    plans = [
        plan(len(near.gpus), usable(near, layer), [one for one in near.ports if one.layer == layer])
        for layer in ("InfiniBand", "Ethernet")
    ]
    return min((one.cost for one in plans if one), default=None)


@settings(max_examples=examples(60))
@given(near=nodes())
def test_no_other_plan_is_better(near: Locality) -> None:
    here = [one for one in near.ports if one.layer == "InfiniBand"]
    up = usable(near, "InfiniBand")
    found = plan(len(near.gpus), up, here)
    cards = make_cards(len(near.gpus), up, here)
    every = product(range(len(cards)), repeat=len(near.gpus)) if cards else ()
    assert (found and found.cost) == min((cost(cards, place) for place in every), default=None)


def seat(share: float | None, path: str = "PIX", layer: str = "InfiniBand") -> NicsOfGpu:
    gpu = node([port(0)], 1).gpus[0]
    return NicsOfGpu(gpu, (PortOfGpu(port(0, layer=layer), path, 1),), share, None)


@pytest.mark.parametrize(
    ("now", "then", "loss"),
    [
        (seat(50e9), seat(50e9), ""),
        (seat(None), seat(50e9), ""),
        (seat(50e9), seat(None), ""),
        (seat(25e9), seat(50e9), "25.0 instead of 50.0 GB/s"),
        (seat(50e9), seat(25e9), ""),
        (seat(50e9, "SYS"), seat(50e9), "SYS instead of PIX"),
        (seat(50e9), seat(50e9, "SYS"), ""),
        (seat(50e9, layer="Ethernet"), seat(50e9), "Ethernet instead of InfiniBand"),
        (seat(25e9, "SYS", "Ethernet"), seat(50e9),
         "Ethernet instead of InfiniBand, SYS instead of PIX, 25.0 instead of 50.0 GB/s"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("wrong", "cause"),
    [({}, "it shares with a GPU whose own port is lost"), ({"mlx5_0:1": "down"}, "mlx5_0:1: down")],
)
def test_what_a_gpu_loses_is_said_with_its_cause(
    now: NicsOfGpu, then: NicsOfGpu, loss: str, wrong: dict[str, str], cause: str
) -> None:
    found = vars(mapping)["_with_loss"](now, then, wrong)
    assert found.loss == (f"{cause}; {loss}" if loss else "")
    assert found.healthy == (then.share if loss else None)


def test_without_gpus_there_is_a_plan_of_nothing_and_no_binding() -> None:
    ports = node([port(0)], 1).ports
    found = plan(0, ports, ports)
    assert found is not None
    assert found.place == ()
    assert slurm_binding((), 0) is None
    one = CpuBinding(0, 0, "0-3", "numactl")
    assert slurm_binding((one,), 2) is None
    assert slurm_binding((one,), 1) is not None


@settings(max_examples=examples(60))
@given(near=nodes(), data=st.data())
def test_a_port_more_never_makes_it_worse(near: Locality, data: st.DataObject) -> None:
    before = best(near)
    count = len(near.gpus)
    paths = data.draw(st.lists(PATHS, min_size=count, max_size=count))
    after = best(replace(near, ports=(*near.ports, port(99, paths, rate=data.draw(RATES)))))
    assert after is not None
    assert before is None or after[:-1] <= before[:-1]


@settings(max_examples=examples(60))
@given(near=nodes(), data=st.data())
def test_it_is_the_same_however_the_parts_are_numbered(near: Locality, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(near.gpus))), "GPUs")
    names = data.draw(st.permutations(range(len(near.ports))), "ports")
    renamed = tuple(
        replace(one, device=f"mlx5_{names[n]}", paths=tuple(one.paths[g] for g in order))
        for n, one in enumerate(near.ports)
    )
    shuffled = data.draw(st.permutations(renamed), "list")
    other = replace(near, ports=tuple(shuffled))
    one, two = best(near), best(other)
    assert (one and one[:-1]) == (two and two[:-1])
    assert map_nics(other) == map_nics(replace(near, ports=renamed))


@settings(max_examples=examples(60))
@given(near=nodes())
def test_each_port_is_used_or_left_out_and_only_active_ones_are_used(near: Locality) -> None:
    found = mapped(near)
    used = found.ports()
    names = [f"{one.device}:1" for one in used] + [name for name, _ in found.left_out]
    assert sorted(names) == sorted(f"{one.device}:1" for one in near.ports)
    assert all(one.state == "active" and one.layer == found.layer for one in used)
    assert len({len(seat.ports) for seat in found.gpus}) == 1
    assert shares_fit(found, used)


def shares_fit(found: GpuNicMap, used: Sequence[RdmaPort]) -> bool:
    """Whether the GPUs get no more than the ports have."""
    total = sum(seat.share or 0 for seat in found.gpus)
    return total <= sum(one.rate for one in used if isinstance(one.rate, float)) * (1 + 1e-9)


def test_a_port_that_is_down_would_have_the_best_rate_of_its_layer() -> None:
    """One of 100 Gb/s of Ethernet and one that is down as well say nothing of InfiniBand's."""
    own = [port(n, ["PIX" if n == gpu else "NODE" for gpu in range(2)], rate=NDR) for n in range(2)]
    lost = replace(own[0], state="down", rate=RDMA_100G)
    slow = port(7, ["SYS", "SYS"], rate=RDMA_100G)
    found = mapped(node([lost, own[1], slow]))
    assert found.gpus[0].loss == "mlx5_0:1: down; NODE instead of PIX, 25.0 instead of 50.0 GB/s"
    both = [
        lost,
        replace(own[1], state="down", rate=RDMA_100G),
        replace(slow, layer="Ethernet", rate=2 * NDR),
    ]
    found = mapped(node(both))
    assert found.gpus[0].loss.startswith("mlx5_0:1: down; Ethernet instead of InfiniBand, SYS instead of PIX")


def test_a_state_that_is_not_known_is_said_so() -> None:
    near = [port(n, ["PIX" if n == gpu else "NODE" for gpu in range(2)]) for n in range(2)]
    found = mapped(node([replace(near[0], state=""), near[1]]))
    assert found.gpus[0].loss.startswith("mlx5_0:1: in a state that is not known; NODE instead of PIX")
    assert found.left_out == (("mlx5_0:1", "its state is not known"),)
    silent = mapped(node([replace(one, state="") for one in near], stated=False))
    assert [seat.loss for seat in silent.gpus] == ["", ""]
    assert silent.remarks[0].startswith("the source has no states of ports")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"layer": ""}, "its link layer is not known"), ({"state": "init"}, "init"),
        ({"rate": Absent(Why.MISSING)}, "its rate is not known"), ({"rate": 0.0}, "its rate is not known"),
    ],
)  # fmt: skip
def test_a_port_of_which_something_is_missing_is_left_out_with_it(
    changes: dict[str, object], why: str
) -> None:
    good = port(1, ["PIX", "PIX"])
    odd = replace(port(0, ["PIX", "PIX"]), **changes)  # type: ignore[arg-type]
    assert ("mlx5_0:1", why) in mapped(node([odd, good])).left_out


def test_slots_that_are_slower_than_ports_and_those_that_could_do_more_are_said() -> None:
    slow = port(0, ["PIX"], pcie=GEN4)
    assert mapped(node([slow])).remarks == ("mlx5_0:1: PCIe 4 x16 lets 31.5 of the ports' 50.0 GB/s through",)
    full = mapped(node([slow], slots={"mlx5_0": Pcie(5, 16)}))
    assert full.remarks == (
        "mlx5_0:1: PCIe 4 x16 lets 31.5 of the ports' 50.0 GB/s through; card and slot can do PCIe 5 x16",
    )
    wide = mapped(node([port(0, ["PIX"], rate=RDMA_100G, pcie=GEN4)], slots={"mlx5_0": Pcie(5, 16)}))
    assert wide.remarks == ("mlx5_0:1: PCIe 4 x16; card and slot can do PCIe 5 x16",)
    assert mapped(node([port(0, ["PIX"], rate=RDMA_100G, pcie=GEN4)])).remarks == ()


def test_more_ports_than_nccl_takes_by_name_are_not_named() -> None:
    for count, named in ((32, True), (33, False)):
        ports = [port(n, ["PIX" if n == gpu else "NODE" for gpu in range(count)]) for n in range(count)]
        names = [one.name for one in job_settings(mapped(node(ports)))]
        assert ("NCCL_IB_HCA" in names) is named


def test_ports_without_a_known_card_are_cards_of_their_own() -> None:
    slow = [port(n, ["PIX" if n == gpu else "SYS" for gpu in range(2)], card="", pcie=GEN4) for n in range(2)]
    assert mapped(node(slow)).remarks == (
        "mlx5_0:1: PCIe 4 x16 lets 31.5 of the ports' 50.0 GB/s through",
        "mlx5_1:1: PCIe 4 x16 lets 31.5 of the ports' 50.0 GB/s through",
    )
