"""Probes as a study, from the history of a state folder that is only read."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.node.probe.drawn import SMALL, TWO_H200, drawn, gloo, on_switch, two_islands
from tests.support import EPOCH, StillClock
from wirewatch.cli.hardware import replayed
from wirewatch.config import Config, StateSection
from wirewatch.core.ports import Probe
from wirewatch.core.probe import MIB, Probed
from wirewatch.core.types import Absent, Why
from wirewatch.probe import restore
from wirewatch.probe.history import History
from wirewatch.probe.restore import keep
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Estimate, EstimateBasis, Ranks
from wirewatch_lab.cli.advise.machines import own_probes
from wirewatch_lab.study.curve import Study
from wirewatch_lab.study.points import LAST, history_study, probes_study

TWO = on_switch(2)
GPUS = {gpu.uuid for gpu in TWO[0].group.gpus}


def kept(folder: Path, *probes: Probed) -> Path:
    path = folder / "probes.sqlite"
    clock = StillClock()
    history = History.open(path, clock)
    for place, probed in enumerate(probes):
        keep(history, probed, EPOCH + place, "boot-1", "daemon")
    return path


def read(path: Path) -> Study:
    found = history_study(path, StillClock(), GPUS)
    assert isinstance(found, Study)
    return found


def points(study: Study, op: str, launch: str) -> dict[int, tuple[float, ...]]:
    (curve,) = (c for c in study.curves if (c.op, c.configuration.launch) == (op, launch))
    return {point.size_bytes: point.seconds for point in curve.points}


def test_the_last_probes_are_repeats_and_the_file_stays_as_it_was(tmp_path: Path) -> None:
    path = kept(tmp_path, *(drawn(TWO, speed=1 + place / 100) for place in range(7)))
    before = path.read_bytes()
    found = read(path)
    assert path.read_bytes() == before
    assert found.source == f"probes of this node, the last {LAST}"
    large = points(found, "all_reduce", "eager")
    expected = TWO_H200["all_reduce"][1]
    assert large[256 * MIB] == pytest.approx([expected / (1 + place / 100) for place in range(2, 7)])
    assert points(found, "all_reduce", "graph")[8] == pytest.approx([SMALL[8]] * LAST)


def test_forced_and_failed_probes_and_those_of_other_gpus_are_left_out(tmp_path: Path) -> None:
    good = drawn(TWO)
    path = kept(
        tmp_path, good, drawn(TWO, forced=True, speed=0.1), drawn(TWO, outcome="timeout"), drawn(on_switch(4))
    )
    assert points(read(path), "all_reduce", "eager")[64 * MIB] == pytest.approx([TWO_H200["all_reduce"][0]])


def test_a_probe_that_cannot_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kept(tmp_path, drawn(TWO), drawn(TWO, speed=0.5))
    monkeypatch.setattr(
        restore,
        "probe_of",
        lambda record, read=restore.probe_of: read(record) if record.at == EPOCH else None,
    )
    assert read(path).source == "probes of this node, the last one"


def test_wrong_values_are_no_times() -> None:
    found = probes_study([drawn(TWO, wrong=1)], "here")
    assert isinstance(found, Study)
    assert {curve.configuration.launch for curve in found.curves} == {"eager"}


def test_of_islands_the_slower_counts() -> None:
    found = probes_study([drawn(two_islands(), speeds={2: 0.5})], "here")
    assert isinstance(found, Study)
    (slow,) = (
        c.points[0].seconds[0] for c in found.curves
        if (c.op, c.configuration.ranks, c.configuration.launch) == ("all_reduce", 4, "eager")
    )  # fmt: skip
    (fast,) = (
        one.seconds for one in drawn(two_islands()).document.collectives  # type: ignore[union-attr]
        if (one.group, one.op, one.size_bytes) == (1, "all_reduce", 64 * MIB)
    )  # fmt: skip
    assert slow == pytest.approx(2 * fast)


def test_a_live_node_has_the_probes_of_its_state_folder(tmp_path: Path) -> None:
    kept(tmp_path, drawn(TWO))
    config = Config(state=StateSection(directory=str(tmp_path)))
    hardware, nvml = replayed("h200x8", ())
    nvml.stop()
    alive = replace(hardware, probe=cast("Probe", object()))
    (found,) = own_probes(alive, config, GPUS)
    assert found.source == "probes of this node, the last one"
    assert own_probes(alive, config, {"GPU-of-another-machine"}) == ()
    assert own_probes(hardware, config, GPUS) == ()


def test_a_group_of_one_gpu_has_sent_nothing() -> None:
    """Nor has one that the plan does not have."""
    probed = drawn(TWO)
    assert probed.document is not None
    one, *_ = probed.document.collectives
    collectives = tuple(replace(one, group=group) for group in (0, 1, 2))
    alone = replace(
        probed, plan=replace(probed.plan, groups=((0, 1), (0,))),
        document=replace(probed.document, collectives=collectives),
    )  # fmt: skip
    found = probes_study([alone], "here")
    assert isinstance(found, Study)
    assert [(c.configuration.ranks, len(c.points)) for c in found.curves] == [(2, 1)]


@pytest.mark.parametrize("change", [{"seconds": 0.0}, {"seconds": -1.0}, {"wrong": 1}, {"launch": "other"}])
def test_what_is_no_time_of_a_job_makes_no_curve(change: dict[str, Any]) -> None:
    probed = drawn(TWO)
    assert probed.document is not None
    one, *_ = probed.document.collectives
    changed = replace(probed, document=replace(probed.document, collectives=(replace(one, **change),)))
    assert isinstance(probes_study([changed], "here"), Absent)


@pytest.mark.parametrize(
    "probes", [[], [gloo()], [drawn(TWO, outcome="failed")], [replace(drawn(TWO), document=None)]]
)
def test_without_a_whole_probe_of_gpus_there_is_no_study(probes: list[Probed]) -> None:
    assert isinstance(probes_study(probes, "here"), Absent)


@pytest.mark.parametrize("text", [b"", b"SQLite format 3\0 and no more", b"{}" * 999])
def test_a_file_that_is_no_history_is_said_and_stays(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "probes.sqlite"
    path.write_bytes(text)
    assert isinstance(history_study(path, StillClock(), GPUS), Absent)
    assert path.read_bytes() == text
    assert history_study(tmp_path / "none", StillClock(), GPUS) == Absent(
        Why.MISSING, f"{tmp_path / 'none'}: no probe was kept"
    )


def test_other_sizes_and_ranks_of_the_node_follow_from_its_probes(tmp_path: Path) -> None:
    slow = read(kept(tmp_path, drawn(TWO, speed=0.5)))
    eight = on_switch(8)
    found = {}
    for name, studies in (("probed", (slow,)), ("not", ())):
        machine = AdvisedMachine("this node", Absent(Why.MISSING, "drawn"), eight, studies)
        one = CollectiveTimes(machine).estimate("all_reduce", Ranks(8), 128 * MIB)
        assert isinstance(one, Estimate)
        found[name] = one
    assert found["probed"].basis is EstimateBasis.FITTED
    assert found["probed"].seconds == pytest.approx(2 * found["not"].seconds, rel=0.1)


def test_what_an_island_measured_says_nothing_of_gpus_that_pcie_joins() -> None:
    conditions = two_islands()
    study = probes_study([drawn(conditions)], "here")
    assert isinstance(study, Study)
    islands = replace(study, curves=[c for c in study.curves if c.configuration.ranks == 4])
    machine = AdvisedMachine("this node", Absent(Why.MISSING, "drawn"), conditions, (islands,))
    across = CollectiveTimes(machine).estimate("all_reduce", Ranks(5), 256 * MIB)
    assert isinstance(across, Estimate)
    assert across.basis is EstimateBasis.DERIVED
    inside = CollectiveTimes(machine).estimate("all_reduce", Ranks(3), 256 * MIB)
    assert isinstance(inside, Estimate)
    assert inside.basis is EstimateBasis.FITTED
    assert across.seconds > 3 * inside.seconds
