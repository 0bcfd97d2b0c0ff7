"""The runbook has an entry for every rule that the code can make, and says of each what the code does."""

import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain

import click
import pytest

from dashboards.runbook import LABELS, PAGE, Entry, code, entries, entry_of, page
from tests.node.collectors.test_overlays import AFTER_HALF_AN_HOUR, OF_THE_DRIVER, TABLE
from tests.rows import each
from tests.support import Node
from tools import pages, rules
from tools.alerting import records
from wirewatch.catalogue import components
from wirewatch.catalogue import rules as declared
from wirewatch.cli import cli
from wirewatch.collectors.gpudirect.judge import ACTIONS
from wirewatch.collectors.infiniband.model import ERRORS, LINK_DOWNED
from wirewatch.collectors.nvlink.model import DEFAULT_LIMITS
from wirewatch.core.collector import BLIND_ACTION, Rule
from wirewatch.core.kernellog import TEXTS
from wirewatch.core.nvml import fabric_troubles
from wirewatch.core.types import Expect, Health
from wirewatch.core.xids import HEALTH, RECOVERY_CHANGED, XIDS, Severity
from wirewatch.documents import process, series
from wirewatch.hw.overlay import bundled_overlays
from wirewatch.kubernetes import apiserver as condition
from wirewatch.probe.judge import DO
from wirewatch.server import reload
from wirewatch.verdict.drift.change import SEVERITY
from wirewatch.verdict.ledger import VerdictPolicy
from wirewatch.verdict.straggler.signals import Resource
from wirewatch_fleet.controller import report as controller

DEMO = "demo-dgx-h200"
AFTERS = ("At once", "By time", "Next probe", "Probation", "Latches")
JUDGED = {kind for kind, one in {"link_downed": LINK_DOWNED, **ERRORS}.items() if one.limit}
MASKS = (*(1 << shift for shift in range(0, 8, 2)), *(number << 8 for number in range(16)))
"""Fabric health masks that complain of one thing each."""


def errors(family: str, kinds: Iterable[str]) -> set[str]:
    return {f"{family}.{kind}_errors" for kind in kinds}


FAMILIES: Mapping[str, set[str]] = {
    "*.*": {"xid.*", "sxid.*"},
    "xid.*": {"xid.*"},
    "sxid.*": {"sxid.*"},
    "*.blind": {f"{one.name}.blind" for one in components()},
    "nvlink.*_errors": errors("nvlink", DEFAULT_LIMITS),
    "infiniband.*_errors": errors("infiniband", JUDGED),
    "fabric.*": {
        "fabric.configuration_*" if name.startswith("configuration_") else f"fabric.{name}"
        for name in chain.from_iterable(fabric_troubles(mask) for mask in MASKS)
    },
    "gpudirect.*": {f"gpudirect.{name}" for name in ACTIONS},
    "topology.*": {
        f"topology.{kind.value}"
        for kind, one in SEVERITY.items()
        if one.health is not Health.OK or one.probation
    },
    "straggler.*": {f"straggler.{resource.value}" for resource in DO if resource is not Resource.LINK},
    "kernel.*": {f"kernel.{kind}" for kind, text in TEXTS.items() if text.severity in HEALTH},
}
"""What the patterns in the code can become."""
ELSEWHERE = {
    **dict.fromkeys((*OF_THE_DRIVER, "gpu-lost"), "gpu.blind"),
    **dict.fromkeys(AFTER_HALF_AN_HOUR, "probe.failed"),
}
"""Rules of the bundled faults that the table of all others leaves out."""


@cache
def made() -> frozenset[str]:
    """Rules and patterns of rules that the code makes."""
    return frozenset(rules.patterns(rules.sources()))


each_entry = each("entry", entries(), ids=lambda entry: entry.title)


def test_every_rule_has_one_entry_and_every_entry_a_rule() -> None:
    named = [name for entry in entries() for name in entry.names]
    assert len(named) == len(set(named))
    told = {n for n, xid in XIDS.items() if xid.severity is not Severity.NOTED} | {RECOVERY_CHANGED}
    numbered = {name for name in named if re.fullmatch(r"xid\.\d+", name)}
    assert numbered <= {f"xid.{number}" for number in told}
    filled = {rule for one in made() for rule in FAMILIES.get(one, {one})}
    assert set(named) - numbered == filled | {rule.name for rule in declared() if rule.means}


def test_what_the_code_makes_is_declared_by_a_collector() -> None:
    for rule in made():
        assert any(fnmatchcase(one.name, rule) or fnmatchcase(rule, one.name) for one in declared()), rule


@each("rule", declared(), ids=lambda one: one.name)
def test_an_entry_says_how_bad_its_rule_can_be(rule: Rule) -> None:
    exact = [one for one in entries() if rule.name in one.names]
    kinds = [one for one in entries() if any(fnmatchcase(name, rule.name) for name in one.names)]
    for entry in exact or kinds or [entry_of(rule.name)]:
        assert all(health.name in entry.points["How bad"] for health in rule.healths)


def test_patterns_that_the_code_makes_are_those_that_are_filled_here() -> None:
    assert {one for one in made() if "*" in one} == set(FAMILIES)


@each(
    ("source", "found"),
    [
        ('Finding("fans.slow", 1)', {"fans.slow"}),
        ('faults.ProbeFinding(rule=f"fans.{kind}_slow")', {"fans.*_slow"}),
        (
            'for kind, n in (("slow", 1), ("off", 2)):\n    Finding(f"fans.{kind}", n)',
            {"fans.slow", "fans.off"},
        ),
        ('RULE = "fans.off"\nFinding(RULE)', {"fans.off"}),
        ('def f(x):\n    return f"fans.{x}"\nFinding(f(1))', {"fans.*"}),
        ('def f(x, rule):\n    Finding(rule)\nf(1, "fans.off")', {"fans.off"}),
        ("Finding(entry.rule)", set()),
        ('OFF = Rule("fans.off")\ndef f():\n    yield OFF.finding(1)', {"fans.off"}),
        ('OFF = Rule("fans.off")\nRULES = (OFF,)', set()),
    ],
)
def test_a_rule_is_found_however_it_is_given(source: str, found: set[str]) -> None:
    assert rules.patterns({"fans.py": source}) == found


@pytest.mark.parametrize("source", ["Finding(names[0])", "Finding()", "Finding(rule)", "Finding(f(1))"])
def test_a_rule_that_cannot_be_found_is_reported(source: str) -> None:
    with pytest.raises(rules.UnknownRuleError):
        rules.patterns({"fans.py": source})


@each_entry
def test_an_entry_is_whole(entry: Entry) -> None:
    assert tuple(entry.points) == LABELS
    assert all(entry.points.values())
    assert entry.points["After"].startswith(AFTERS)
    assert entry.overlays or entry.like


@each_entry
def test_what_comes_after_is_what_the_policy_says(entry: Entry) -> None:
    policy, after = VerdictPolicy(), entry.points["After"]
    for rule in entry.names:
        if Health.FAILED.name not in entry.points["How bad"]:
            assert not after.startswith(("Probation", "Latches"))
        elif policy.latches(rule):
            assert after.startswith("Latches")
        else:
            assert after.startswith("At once" if policy.forgets(rule) else "Probation")


@each("name", TABLE)
def test_an_entry_says_of_a_bundled_fault_what_the_code_does(name: str) -> None:
    for told in TABLE[name]:
        entry = entry_of(told.rule)
        assert told.health.name in entry.points["How bad"]
        assert told.action.lower() in entry.text.lower()
        assert name in entry.overlays


@each_entry
def test_a_fault_that_an_entry_names_makes_its_rule(entry: Entry) -> None:
    for overlay in () if entry.like else entry.overlays:
        found = {told.rule for told in TABLE.get(overlay, ())} | {ELSEWHERE.get(overlay, "")}
        assert any(entry.has(rule) for rule in found), overlay


def test_the_page_names_every_bundled_fault_and_no_other() -> None:
    assert set(code(page())) >= set(bundled_overlays())
    rehearsed = {one for entry in entries() for one in code(entry.points["Rehearse"])}
    named = {one for one in rehearsed if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", one)}
    assert named <= {DEMO, "h200x4-idle", *bundled_overlays()}


@pytest.mark.parametrize(
    ("rule", "collector", "recording", "expect"),
    [
        ("gpu.missing", "inventory", DEMO, Expect(gpus=9)),
        ("nvlink.links_missing", "nvlink", DEMO, Expect(nvlink_links=19)),
        ("infiniband.ports_missing", "infiniband", DEMO, Expect(rdma_ports=11)),
        ("gpudirect.missing", "gpudirect", "h200x4-idle", Expect(gpudirect=True)),
    ],
)
def test_what_is_rehearsed_by_an_expectation(
    rule: str, collector: str, recording: str, expect: Expect
) -> None:
    (said,) = [f"{k} = {str(v).lower()}" for k, v in asdict(expect).items() if v is not None]
    assert f"`[expect] {said}`" in entry_of(rule).points["Rehearse"]
    at = Node(recording, expect=expect)
    at.poll(collector, times=3)
    assert {(f.rule, f.health) for f in at.state.components[collector].findings} == {(rule, Health.FAILED)}


def test_a_rate_that_no_link_reaches_makes_all_of_them_slow() -> None:
    assert "`[policy.nvlink] slow_ratio = 1.1`" in entry_of("nvlink.slow").points["Rehearse"]
    at = Node(DEMO)
    at.policy("nvlink", slow_ratio=1.1)
    at.poll("nvlink", times=3)
    assert {f.rule for f in at.state.components["nvlink"].findings} == {"nvlink.slow"}


def test_the_defaults_on_the_page_are_those_of_the_policy() -> None:
    block = re.search(r"^\[policy\.verdict\]\n(?:.+\n)+?(?=```)", page(), re.MULTILINE)
    assert block is not None
    told = tomllib.loads(block[0])["policy"]["verdict"]
    assert {k: tuple(v) if isinstance(v, list) else v for k, v in told.items()} == asdict(VerdictPolicy())


def test_what_to_do_when_blind_is_what_findings_say() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page(), re.MULTILINE))
    assert rows.items() >= {why.value: action for why, action in BLIND_ACTION.items()}.items()


@each("line", sorted({one for one in code(page()) if one.startswith("wirewatch ")}))
def test_a_command_on_the_page_is_one(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = cli
    while isinstance(command, click.Group):
        word = words.pop(0)
        if word in {name for one in command.params for name in one.opts}:
            continue
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    options = {name for one in command.params for name in one.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_the_metrics_on_the_page_exist() -> None:
    own = (*series.METRICS, *process.METRICS, *condition.METRICS, *reload.METRICS, *controller.METRICS)
    known = {metric.name for metric in (*own, *(m for c in components() for m in c.metrics))}
    assert set(re.findall(r"(?<!:)\bwirewatch_([a-z0-9_]+)", page())) <= known
    recorded = set(re.findall(r"\b(?:\w+:wirewatch_\w+:\w+|wirewatch:\w+:\w+)", page()))
    assert recorded
    assert recorded <= {one.name for one in records()}


def test_links_lead_somewhere() -> None:
    for path, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page()):
        target = (pages.DOCS / path).resolve() if path else PAGE
        assert target.exists(), path
        heads = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE) if anchor else []
        slugs = {re.sub(r"[^a-z0-9_ -]", "", head.lower()).replace(" ", "-") for head in heads}
        assert not anchor or anchor in slugs, anchor
