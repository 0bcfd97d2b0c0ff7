"""The brake of deploy/slurm as a function of what Slurm shows: by the table of both brakes, and drawn."""

import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.brakes import CASES, HOUR, NODES, POOLS, RACKS, BrakeCase, Now, Shares
from tests.fleet.controller.drawn import POOL, RACK, mark, node, settings
from tests.rows import each
from wirewatch.config import BudgetSection
from wirewatch_fleet.controller.brake import Brake
from wirewatch_fleet.controller.node import TAINT_EFFECT, TAINT_KEY

SLURM = Path(__file__).parents[2] / "deploy" / "slurm"
WEIGH = """
. {folder}/brake.sh
LC_ALL=C REASON=wirewatch NEW_CLUSTER={shares.cluster} NEW_POOL={shares.pool}
NEW_RACK={shares.rack} STOCK={shares.stock}
rows=$(cat)
while read -r NODE rack beside; do
    weigh "${{rack#-}}" "$beside" <<<"$rows"
    printf '%s\\n' "$own" "$scope" "$held" "$tallies"
done <<<"{nodes}"
"""
"""All nodes in one shell, since to start one takes longer than the answer."""


@dataclass(frozen=True)
class Row:
    """A node as sinfo shows it: its state, how long ago Slurm's reason was written, and that."""

    node: str
    state: str = "idle"
    age: float = 0.0
    reason: str = "none"

    def lines(self, now: float, pools: Iterable[str]) -> Iterable[str]:
        at = "Unknown" if self.reason == "none" else stamped(now - self.age)
        return (f"{self.node}|{pool}|{self.state}|{at}|{self.reason}" for pool in pools)


def stamped(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


def drained(now: float, age: float) -> str:
    return f"GPU2 link7 wirewatch: nvlink.link_down GPU 2 link 7 drained {stamped(now - age)}Z #01234567"


@dataclass(frozen=True)
class Weighed:
    own: str
    scope: str
    held: str
    tallies: Sequence[str]


def weigh(
    rows: Sequence[Row],
    shares: Shares,
    of: Sequence[str],
    now: float,
    zone: str = "UTC0",
    *,
    racks: bool = True,
) -> list[Weighed]:
    """What the scripts make of it for each of these nodes."""
    asked = [" ".join((name, *rack_of(name))) if racks else f"{name} -" for name in of]
    script = WEIGH.format(folder=SLURM, nodes="\n".join(asked), shares=shares)
    lines = [line for row in rows for line in row.lines(now, pools_of(row.node))]
    done = subprocess.run(
        ["bash", "-c", script], input="".join(f"{line}\n" for line in lines),
        env={"TZ": zone, "PATH": "/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return [Weighed(*one) for one in _answers(done.stdout)]


def _answers(text: str) -> Iterable[tuple[str, str, str, list[str]]]:
    lines = iter(text.split("\n"))
    for own in lines:
        scope, held = next(lines, ""), next(lines, "")
        tallies = list(iter(lambda: next(lines, ""), ""))
        if tallies:
            yield own, scope, held, tallies


def rack_of(name: str) -> Sequence[str]:
    return next(((rack, *nodes) for rack, nodes in RACKS.items() if name in nodes), ("-",))


def pools_of(name: str) -> Sequence[str]:
    """The pool of a node, and a partition of all nodes, which is none."""
    return [*(pool for pool, nodes in POOLS.items() if name in nodes), "all*"]


def found(case: BrakeCase, now: float) -> dict[str, Row]:
    """The nodes of a case; Slurm's clock of an edited reason says when it was edited, which is now."""
    rows = {}
    for name in NODES:
        _, how, age = case.found(name)
        reasons = {
            Now.OURS: drained(now, age),
            Now.EDITED: f"RMA 4711, was {drained(now, age)}",
            Now.REPLACED: "wirewatch: RMA 4711",
            Now.OTHERS: "maintenance",
        }
        written = age if how is Now.OURS else 0.0
        rows[name] = Row(name, "drained", written, reasons[how]) if how in reasons else Row(name)
    return rows


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_rule_leaves_nodes_as_the_table_says(case: BrakeCase) -> None:
    """Each node in turn, first those that come back; test_slurm_brake.py has all at once, in a real Slurm."""
    now = time.time()
    rows, owners = found(case, now), {name: case.found(name).now for name in NODES}
    for name in NODES:
        if owners[name] is Now.OURS and case.found(name).health in {"ok", "degraded"}:
            rows[name] = Row(name)
    for name in NODES:
        if case.found(name).health != "failed" or rows[name].state != "idle":
            continue
        (answer,) = weigh([*rows.values()], case.shares, [name], now)
        if not answer.held:
            rows[name], owners[name] = Row(name, "drained", 0.0, drained(now, 0.0)), Now.OURS
    out = {name: owners[name] for name, row in rows.items() if row.state == "drained"}
    assert case.left_as(out), out


AGES = st.sampled_from([60.0, 700.0, HOUR - 60, HOUR + 60, 9 * HOUR])
OUT = st.one_of(st.none(), AGES)
"""Of a node that is out: seconds since we took it out; None for others' work, or a time that nobody knows."""
LIMITS = st.one_of(st.integers(0, 6), st.sampled_from(["0%", "5%", "34%", "50%", "100%"]))


@given(st.dictionaries(st.sampled_from(NODES), OUT, max_size=5), st.builds(Shares, *[LIMITS] * 4))
def test_both_brakes_decide_alike(out: dict[str, float | None], shares: Shares) -> None:
    """For each node in use: whether it is held, by what and in which words."""
    now = time.time()
    rows, nodes = [], []
    for name in NODES:
        labels = {POOL: pools_of(name)[0]} | ({RACK: rack_of(name)[0]} if rack_of(name) != ("-",) else {})
        if name not in out:
            rows.append(Row(name))
            nodes.append(node(name, labels=labels))
            continue
        age = out[name]
        ours = {} if age is None else {"marked": mark(at=now - age)}
        reason = "wirewatch: RMA" if age is None else drained(now, age)
        rows.append(Row(name, "drained", age or 0.0, reason))
        taint = {"key": TAINT_KEY, "effect": TAINT_EFFECT}
        nodes.append(node(name, labels=labels, taints=[taint], **ours))
    brake = Brake(nodes, settings(budget=BudgetSection(**shares._asdict())), now)
    free = [one for one in nodes if one.name not in out]
    for one, slurms in zip(free, weigh(rows, shares, [one.name for one in free], now), strict=True):
        kubernetes = brake.holds(one)
        assert (slurms.scope, slurms.held) == (
            (kubernetes[0].value, kubernetes[1]) if kubernetes else ("", "")
        )


@given(
    st.lists(st.tuples(st.sampled_from(NODES), st.floats(0, 1200)), min_size=1, max_size=12),
    st.integers(0, 3), st.integers(0, 3), st.integers(1, 6),
)  # fmt: skip
def test_all_at_once_never_leaves_more_out_than_may_be(
    drains: list[tuple[str, float]], cluster: int, pool: int, stock: int
) -> None:
    """Nodes that all drain before any looks again: each judges by the same list, at its own moment."""
    now = time.time()
    shares = Shares(cluster, pool, 6, stock)
    fresh = {name: float(int(age)) for name, age in drains}
    rows = [Row(name, "drained", fresh[name], drained(now, fresh[name])) for name in fresh]
    rows += [Row(name) for name in NODES if name not in fresh]
    answers = weigh(rows, shares, [*fresh], now)
    kept = [name for name, answer in zip(fresh, answers, strict=True) if not answer.held]
    assert len(kept) <= min(cluster, stock)
    assert all(sum(name in nodes for name in kept) <= pool for nodes in POOLS.values())
    assert kept or not min(cluster, pool, stock)


@given(stock=st.lists(st.one_of(st.none(), st.floats(HOUR + 5, 1e6)), max_size=5), edited=st.booleans())
def test_old_stock_below_its_share_holds_nobody(*, stock: list[float | None], edited: bool) -> None:
    now = time.time()
    rows = []
    for name, age in zip(NODES, stock, strict=False):
        reason = "RMA 4711" if age is None else drained(now, age)
        rows.append(Row(name, "drained*", 1.0 if edited else age or 1.0, reason))
    rows += [Row(name) for name in NODES[len(stock) :]]
    for most, scope in ((len(stock) + 1, ""), (len(stock), "stock")):
        (answer,) = weigh(rows, Shares(1, 1, 1, most), ["g6"], now)
        assert answer.scope == scope


@each(
    ("state", "out"),
    [
        ("drained", 1), ("draining", 1), ("drained*", 1), ("draining@", 1), ("down", 1), ("down*", 1),
        ("fail", 1), ("failing*", 1), ("idle", 0), ("mixed", 0), ("allocated*", 0), ("maint", 0),
        ("idle~", 0),
    ],
)  # fmt: skip
def test_which_states_are_out_of_use(state: str, out: int) -> None:
    rows = [Row("g1", state, 5.0, "RMA"), Row("g2"), Row("g4")]
    (answer,) = weigh(rows, Shares(), ["g2"], time.time())
    assert answer.tallies == [
        f"cluster: 0 of 3 nodes taken out within an hour, 6 may be; {out} out of use in all",
        f"pool a: 0 of 2 nodes taken out within an hour, 6 may be; {out} out of use in all",
        f"rack r1: 0 of 2 nodes taken out within an hour, 6 may be; {out} out of use in all",
    ]


def test_an_answer_without_nodes_drains_nobody() -> None:
    (answer,) = weigh([], Shares("100%", "100%", "100%", "100%"), ["g1"], time.time())
    assert answer.scope == "cluster"


@each("zone", ["UTC0", "Europe/Berlin", "XYZ-14", "America/Caracas"])
def test_the_hour_is_the_same_in_every_time_zone(zone: str) -> None:
    now = time.time()
    for age, held in ((HOUR - 60, "cluster"), (HOUR + 60, "")):
        rows = [Row("g4", "drained", age, drained(now, age)), Row("g1")]
        (answer,) = weigh(rows, Shares(cluster=1), ["g1"], now, zone)
        assert answer.scope == held


def test_without_a_topology_a_node_is_in_no_rack() -> None:
    now = time.time()
    rows = [Row("g1", "drained", 9.0, drained(now, 9.0)), Row("g2")]
    for racks, scope in ((True, "rack"), (False, "")):
        (answer,) = weigh(rows, Shares(rack=1), ["g2"], now, racks=racks)
        assert answer.scope == scope
