"""Times of collectives: measured ones first, else those that the wires should give."""

from dataclasses import replace

import pytest

from tests.support import EPOCH
from wirewatch.advice.machine import Machine
from wirewatch.advice.times import Basis, CollectiveTimes, Estimate, Span
from wirewatch.cli.advise.machines import ChosenMachine
from wirewatch.core.types import Absent
from wirewatch.study.curve import Configuration, Curve, CurvePoint, Study

MIB = 1 << 20
CURVE = Curve(
    "all_reduce", Configuration(4), (CurvePoint(8, (2e-5,)), CurvePoint(64 * MIB, (4e-4,)))
)  # fmt: skip


def described(text: str, *measured: Study) -> Machine:
    machine = ChosenMachine(None, text, (), None, (), None).read()
    return replace(machine, measured=measured)


def study(*curves: Curve) -> Study:
    return Study(EPOCH, "a sweep", {}, curves)


def test_what_was_measured_comes_first() -> None:
    times = CollectiveTimes(described("8xH100", study(CURVE)))
    found = times.estimate("all_reduce", Span(4), 64 * MIB)
    assert isinstance(found, Estimate)
    assert (found.basis, found.source) == (Basis.MEASURED, "a sweep")
    assert found.seconds == pytest.approx(4e-4)


def test_references_say_what_was_not_measured() -> None:
    found = CollectiveTimes(described("4xH100", study(CURVE))).estimate("all_gather", Span(4), 256 * MIB)
    assert isinstance(found, Estimate)
    assert found.basis is Basis.REFERENCE
    assert found.seconds == pytest.approx(0.75 * 256 * MIB / 305.5e9, rel=0.02)


def test_more_ranks_than_gpus_have_no_time() -> None:
    assert isinstance(CollectiveTimes(described("4xH100")).estimate("all_reduce", Span(8), MIB), Absent)


def test_a_recording_is_a_machine() -> None:
    machine = ChosenMachine(None, None, (), "demo-dgx-h200", (), None).read()
    assert machine.conditions[0].group.ranks == 8
    assert not isinstance(machine.topology, Absent)
    assert machine.of == "recording demo-dgx-h200"


def test_a_group_is_the_smallest_that_has_the_ranks() -> None:
    machine = described("8xH100")
    assert machine.group(4) is machine.conditions[0]
    assert machine.group(9) is None
