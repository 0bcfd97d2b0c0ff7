"""The budget of GPU-seconds, and when the next probe is due."""

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.probe.idle import Idle
from tests.rows import each
from wirewatch.probe.model import HOUR, ProbeOptions, ProbePolicy, Spent, due, left, spend
from wirewatch.verdict.straggler.signals import StragglerPolicy

NODES = [[f"GPU-{node:04d}-{gpu}" for gpu in range(8)] for node in range(512)]


def test_an_hour_of_two_gpus_at_a_hundredth_is_72_gpu_seconds() -> None:
    assert left((), 0.0, 2, 0.01) == 72.0
    assert left((), 0.0, 8, 0.01) == 288.0


def test_what_was_spent_is_free_again_after_an_hour() -> None:
    spent = spend(spend((), 0.0, 50.0), 1800.0, 22.0)
    assert left(spent, 1800.0, 2, 0.01) == 0.0
    assert left(spent, HOUR - 1, 2, 0.01) == 0.0
    assert left(spent, HOUR, 2, 0.01) == 50.0
    assert left(spent, 1800.0 + HOUR, 2, 0.01) == 72.0


def test_more_than_there_is_leaves_nothing_not_less() -> None:
    assert left(spend((), 0.0, 1e6), 1.0, 8, 0.5) == 0.0


COSTS = st.lists(st.tuples(st.floats(0.0, 900.0), st.floats(0.0, 40.0)), max_size=60)


@given(COSTS)
def test_who_asks_first_never_holds_more_than_the_share_in_any_hour(costs: list[tuple[float, float]]) -> None:
    mono, spent, held = 0.0, (), []
    account: Spent = spent
    for wait, cost in costs:
        mono += wait
        if left(account, mono, 2, 0.01) >= cost:
            account = spend(account, mono, cost)
            held.append((mono, cost))
    for start, _ in held:
        assert sum(cost for at, cost in held if start <= at < start + HOUR) <= 72.0 + 1e-6
    assert len(account) <= len(held)


def test_the_account_forgets_what_is_over_an_hour_old() -> None:
    account: Spent = ()
    for n in range(1000):
        account = spend(account, n * 600.0, 1.0)
    assert len(account) == 6


def test_the_next_probe_is_due_after_every() -> None:
    assert due(1000.0, 600.0, 0.0, NODES[0], 5) == 1600.0


@given(st.integers(0, 10_000), st.floats(0.0, 0.99), st.sampled_from(NODES))
def test_jitter_stays_within_its_part_and_is_the_same_every_time(
    count: int, jitter: float, names: list[str]
) -> None:
    at = due(1000.0, 600.0, jitter, names, count)
    assert 600.0 * (1 - jitter) - 1e-6 <= at - 1000.0 <= 600.0 * (1 + jitter) + 1e-6
    assert at == due(1000.0, 600.0, jitter, names, count)


def test_jitter_spreads_a_cluster_and_draws_again_for_each_probe() -> None:
    nodes = [due(0.0, 600.0, 0.1, names, 1) for names in NODES]
    tenths = [sum(1 for at in nodes if 540 + 12 * n <= at < 552 + 12 * n) for n in range(10)]
    assert min(tenths) > 512 / 10 / 3
    assert statistics.mean(nodes) == pytest.approx(600.0, rel=0.02)
    probes = [due(0.0, 600.0, 0.1, NODES[0], count) for count in range(512)]
    assert statistics.mean(probes) == pytest.approx(600.0, rel=0.02)
    assert len(set(nodes)) > 500


# --- in the component


def test_a_spent_budget_shuts_the_gate_and_it_opens_again() -> None:
    """Two GPUs at 0.0017: 12.24 GPU-seconds an hour, a probe holds 2 x 1.18."""
    node = Idle(budget=0.0017, probe_interval=60.0)
    node.probe()
    first = node.clock.seconds
    node.probe(4)
    while node.reason() != "budget":
        node.poll()
        assert len(node.probes.ordered) == 5
    for _ in range(3):
        node.poll()
    assert node.series("probe_skips_total", reason="budget") == [1.0]
    detail = node.memory.refusal.detail if node.memory.refusal else ""
    assert detail == "0 GPU-seconds are left of this hour, a probe takes 2"
    node.probe()
    assert HOUR - 60 < node.clock.seconds - first < HOUR + 120
    assert node.component.findings == ()


def test_the_first_probe_of_an_hour_is_always_allowed() -> None:
    node = Idle(budget=0.001, settle=0.0)
    node.poll()
    assert node.reason() == ""
    assert len(node.probes.ordered) == 1


def test_a_budget_below_one_probe_allows_one_an_hour() -> None:
    node = Idle(budget=0.0001, settle=0.0, probe_interval=300.0)
    node.poll(times=200, every=15.0)
    assert len(node.probes.ordered) == 1
    assert node.reason() == "budget"
    node.poll(times=60, every=15.0)
    assert len(node.probes.ordered) == 2


@each(
    ("policy", "told"),
    [
        ({"confirm": 0}, "must be above 0: 'confirm'"), ({"confirm": 1, "failures": 1, "learn": 1}, ""),
        ({"ratio": 0.0}, "must be above 0 and at most 1: 'ratio'"), ({"ratio": 1.0}, ""),
        ({"ratio": 1.1, "learn": 0}, "must be above 0: 'learn'; must be above 0 and at most 1: 'ratio'"),
        ({"straggler": StragglerPolicy(confirm=0)}, "straggler: "),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_meant_is_reported(policy: dict[str, Any], told: str) -> None:
    wrong = ProbePolicy(**policy).wrong()
    assert wrong.startswith(told)
    assert bool(wrong) == bool(told)


@each(
    ("options", "told"),
    [
        ({}, ""),
        ({"budget": 0.0}, "budget must be above 0"),
        ({"jitter": 1.0}, "jitter must be from 0"),
        ({"probe_interval": 0.0}, "must be above 0: 'probe_interval'"),
        ({"deadline": 60.0}, "must be above kill_after: 'deadline'"),
        ({"ops": ("all_reduce", "alltoall")}, "ops are all_reduce"),
        ({"ops": ("all_reduce", "all_reduce")}, "each once: 'all_reduce'"),
        ({"ops": ()}, "ops are"),
        ({"latency_sizes": (6,)}, "multiples of 4 B"),
        ({"bandwidth": ((1 << 20, 0),)}, "runs are above 0"),
        ({"bandwidth": ((1 << 20, 5), (1 << 20, 8))}, "each once, runs are above 0: 1048576"),
        ({"latency_sizes": (8, 8)}, "each once, runs are above 0: 8"),
        ({"pins": {"all_reduce@256M": 1e9}}, "pins are named OP"),
        ({"pins": {"all_reduce@268435456": 3e11, "all_gather": 1e11}}, ""),
        ({"settle": -1.0}, "settle"),
        ({"ranks": 0}, "ranks"),
        ({"unseen_bytes": -1}, "must not be below 0: 'unseen_bytes'"),
        ({"latency_sizes": (0,)}, "multiples of 4 B"),
        ({"pins": {"all_reduce": 0.0}}, "pins are named OP"),
        ({"pins": {"alltoall": 1e9}}, "pins are named OP"),
        ({"unseen_bytes": 0, "free_bytes": 0, "ranks": 1, "settle": 0.0, "jitter": 0.0, "budget": 1.0}, ""),
        ({"latency_sizes": (4,), "bandwidth": ((8, 1),), "ops": ("all_reduce",)}, ""),
    ],
)
def test_options_that_cannot_be_meant_are_reported(options: dict[str, object], told: str) -> None:
    wrong = ProbeOptions(**options).wrong()  # type: ignore[arg-type]
    assert (told in wrong) == (bool(told) or not wrong)
    assert bool(wrong) == bool(told)
