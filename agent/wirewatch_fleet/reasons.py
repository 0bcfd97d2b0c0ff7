"""What a reason of the table means, and what to do about it: the runbook's text of each rule."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import NamedTuple

FILE = "reasons.json"
"""Made of docs/runbook.md by `make generated`: the means and the do of each rule or pattern of rules."""


class ReasonText(NamedTuple):
    means: str
    do: str


OF_NODES: Mapping[str, ReasonText] = {
    "silent": ReasonText(
        "the node is a target of Prometheus and does not answer; nothing was wrong when it was last heard",
        "see whether the node is up (its console, its BMC), then the agent's pod or unit and its log,"
        " then what is between it and Prometheus; `wirewatch check` on the node still answers",
    ),
    "removed": ReasonText(
        "the node was heard within a day and is no target of Prometheus any more",
        "nothing, if somebody has taken the node away: the row goes a day after it was last heard. "
        "Otherwise find out whether the node is still there (`kubectl get node`), then its labels, "
        "the agent's pod and the scrape configuration",
    ),
    "never_heard": ReasonText(
        "the node is a target of Prometheus that has not answered within a day",
        "see whether the agent runs there and listens at an address that Prometheus reaches (by "
        "default it listens on the node alone), and whether a network policy or TLS keeps the scrape "
        "out",
    ),
    "nothing_read": ReasonText(
        "the agent answers and has read nothing: it has just started, or has nothing to watch",
        "wait for a minute after its start; then `wirewatch check` on the node, and the agent's log; "
        "a node without GPUs needs no agent",
    ),
    "released": ReasonText(
        "its GPUs are let go of on purpose (`wirewatch release`), or were until a quarter of an hour ago",
        "nothing while somebody works there: the agent's log has the name; `wirewatch release --end` "
        "on the node takes the GPUs back",
    ),
    "no_rules": ReasonText(
        "no node has been heard within a day, or the recording rules are not loaded",
        "load wirewatch-recording.yml into this Prometheus, and look at its targets of the job `wirewatch`",
    ),
}
"""Reasons that are no findings."""
OTHERWISE = ReasonText(
    "a rule that this version of wirewatch does not know",
    "`wirewatch findings list` on the node says what to do",
)


def reason(rule: str) -> ReasonText:
    """What it means and what to do, of a rule or of a reason that is no finding."""
    known = {**OF_NODES, **of_rules()}
    pattern = next((name for name in known if fnmatchcase(rule, name)), "")
    return known.get(rule) or known.get(pattern) or OTHERWISE


@cache
def of_rules() -> Mapping[str, ReasonText]:
    """By the rule, or the pattern of rules, that an entry of the runbook names."""
    made = json.loads(files(__package__).joinpath(FILE).read_text("utf-8"))
    return {name: ReasonText(*one) for name, one in made.items()}
