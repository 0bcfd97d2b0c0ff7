"""Default limits of the probe from both sides, closely: one that moves by a tenth is noticed."""

from collections.abc import Callable
from types import ModuleType

import pytest

from tests.node.probe.drawn import drawn, on_switch
from tests.node.probe.idle import Idle
from tests.rows import each
from wirewatch.core.probe import Conditions, Plan
from wirewatch.probe import collector, gate, launcher, model, remote, restore, runner, setup
from wirewatch.probe.findings import probe_findings
from wirewatch.probe.measurement import measure
from wirewatch.probe.model import ProbeOptions, ProbePolicy, left

POLICY, OPTIONS = ProbePolicy(), ProbeOptions()
HOUR = 3600.0
FOUR = on_switch(4)


def rules(**how: object) -> set[str]:
    probed = drawn(FOUR, **how)  # type: ignore[arg-type]
    return {one.rule for one in probe_findings(probed, measure(probed), POLICY)}


def usual(conditions: tuple[Conditions, ...]) -> float:
    """The lowest part of the expectation that a drawn node reaches at full speed."""
    return min(one.ratio for one in measure(drawn(conditions)) if one.ratio is not None)


@pytest.mark.parametrize(
    ("part", "worst"), [(0.68, "FAILED"), (0.72, "DEGRADED"), (0.83, "DEGRADED"), (0.87, "")]
)
def test_a_node_is_slow_below_seven_tenths_of_what_is_expected_and_odd_below_85(
    part: float, worst: str
) -> None:
    probed = drawn(FOUR, speed=part / usual(FOUR))
    found = [(one.rule, one.worst.name) for one in probe_findings(probed, measure(probed), POLICY)]
    assert found == [("probe.busbw", worst)] * bool(worst)


@pytest.mark.parametrize(("share", "told"), [(0.92, False), (0.88, True), (1.08, False), (1.12, True)])
def test_bytes_may_be_a_tenth_away_from_the_algorithm_s(share: float, told: bool) -> None:  # noqa: FBT001
    assert rules(share={2: share}) == ({"probe.path"} if told else set())


@pytest.mark.parametrize(("part", "told"), [(0.82, False), (0.77, True)])
def test_a_link_may_carry_a_fifth_less_than_the_others(part: float, told: bool) -> None:  # noqa: FBT001
    assert rules(link=(3, 11, part)) == ({"probe.uneven"} if told else set())


def test_two_probes_confirm_and_three_that_cannot_be_done_are_reported() -> None:
    assert (POLICY.confirm, POLICY.failures) == (2, 3)


@each(
    ("module", "run", "limits"),
    [
        (collector, lambda: collector.probe_summary(None, 0.0),
         {"GUESSED_SECONDS": 6.0, "CONFIRM_SECONDS": 60.0, "ASK_AGAIN_SECONDS": 300.0, "SOON": 1e-3}),
        (gate, lambda: gate.watch_users(gate.Stillness(), gate.GateFacts((), (), None, 0.0)),
         {"PROHIBITED": 2}),
        (launcher, lambda: launcher.environment({}, Plan("", (), ())),
         {"KILL_SECONDS": 5.0, "REAP_SECONDS": 1.0, "LIMIT": 8 << 20, "QUIET": 2.0, "TAIL": 64 << 10,
          "_POLL_SECONDS": 0.005}),
        (model, lambda: model.draw((), 0), {"GIB": 1 << 30, "ELEMENT": 4, "HOUR": HOUR}),
        (remote, lambda: remote.detail(b""), {"OK": 200, "FACTS_SECONDS": 35.0, "RESUME_SECONDS": 2.0}),
        (restore, lambda: restore.boot_id(Idle(2).hardware),
         {"REMEMBERED": 50, "SAMPLED": 40, "ADDED": 200, "WITHOUT_DAEMON": 10, "TWICE": 2,
          "PROBER_SECONDS": 1.0, "BUSY_SECONDS": 0.3}),
        (runner, lambda: runner.Lease().grant(),
         {"GUARD_SECONDS": 0.02, "CLOCKS_AFTER": 0.003, "LOG_LIMIT": 16 << 20, "_POLL_SECONDS": 0.01,
          "ALLOCATIONS_SECONDS": 1.0}),
        (setup, lambda: setup.cpu_scene(1), {"MBYTES": 1e6}),
    ],
)  # fmt: skip
def test_how_long_parts_of_a_probe_may_take_and_how_much_is_read(
    module: ModuleType, run: Callable[[], object], limits: dict[str, float]
) -> None:
    """These decide how soon a probe gives way and what a daemon reads: a change of any is meant.

    `run` runs a line of the module, by which coverage knows whose limits these are.
    """
    run()
    assert {name: getattr(module, name) for name in limits} == limits


def test_what_probes_may_cost_and_how_long_they_count() -> None:
    assert left((), 0.0, 8, OPTIONS.budget) == pytest.approx(0.01 * 8 * HOUR)
    assert (OPTIONS.probe_interval, OPTIONS.fresh, OPTIONS.kill_after) == (600.0, 2 * HOUR, 60.0)
    rules = OPTIONS.limits()
    assert (rules.settle, rules.unseen, rules.free) == (120.0, 2 << 30, 3 << 30)
