"""faults: what the probe says of slow ways, and what it makes of workers and GPUs in trouble."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proof.hardware import trouble
from proof.hardware.kit import Report
from proof.hardware.probing import Probing, as_document, command, probing
from wirewatch.core.probe import ALL_REDUCE

RATIO = 0.7
LARGE = 1 << 24
"""Bytes from which a message has a bandwidth to speak of."""
OK, FAILED = 0, 2


@dataclass(frozen=True)
class Way:
    """Settings that send NCCL another way, and the word for it in a field of the document or its results."""

    settings: Mapping[str, str]
    field: str
    word: str
    slow: bool = False
    ops: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.settings.items())


WAYS = (
    Way({"NCCL_P2P_DISABLE": "1"}, "transport", "shm", slow=True),
    Way({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, "transport", "net_socket", slow=True),
    # The other collectives have no tree: NCCL then refuses to run them at all.
    Way({"NCCL_ALGO": "Tree"}, "algorithm", "tree", ops=(ALL_REDUCE,)),
    Way({"NCCL_PROTO": "LL"}, "protocol", "ll"),
)


def run(report: Report, _options: argparse.Namespace) -> None:
    with probing(report) as here:
        before = here.used()
        report.note(gpus=[gpu.uuid for gpu in here.gpus], memory_before=before)
        report.attempt("a healthy probe", lambda: _healthy(here, "at first"))
        for way in WAYS:
            report.attempt(way.name, lambda way=way: _way(here, way))  # type: ignore[misc]
            report.attempt("a healthy probe", lambda way=way: _healthy(here, f"after {way.name}"))  # type: ignore[misc]
        report.attempt("a tree for collectives without one", lambda: _refused(here))
        report.attempt("the command", lambda: _commands(report))
        trouble.run(here)
        left = here.left(before)
        report.check("after all: no worker is left, memory is as before", ok=not left, told=left)


def _healthy(here: Probing, when: str) -> None:
    here.report.progress(f"healthy, {when}")
    document = as_document(here.must(f"healthy {when}"))
    rules = [f"{f['rule']}: {f['evidence']}" for f in document["findings"]]
    here.report.check(
        f"healthy, {when}: no finding", ok=document["health"] == "ok" and not rules, told="; ".join(rules)
    )


def _way(here: Probing, way: Way) -> None:
    here.report.progress(way.name)
    plan = {"ops": way.ops} if way.ops else {}
    document = as_document(here.must(way.name, changes=way.settings, **plan))
    here.report.note(**{way.name: document})
    judge_way(here.report, way, document)


def judge_way(report: Report, way: Way, document: Mapping[str, Any]) -> None:
    large = [one for one in document["results"] if one["size_bytes"] >= LARGE]
    named = [document["transport"]] if way.field == "transport" else [one[way.field] for one in large]
    report.check(
        f"{way.name}: {way.field} {way.word} is named", ok=bool(named) and set(named) == {way.word},
        told=", ".join(sorted(set(named))),
    )  # fmt: skip
    ratios = [one["ratio"] for one in large if one["ratio"] is not None]
    text = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    if not way.slow:
        rules = ", ".join(f["rule"] for f in document["findings"])
        report.progress(f"{way.name}: of the expected {text or 'nothing known'}; findings: {rules or 'none'}")
        return
    report.check(
        f"{way.name}: below {RATIO} of what is expected", ok=bool(ratios) and max(ratios) < RATIO, told=text
    )
    for rule in ("probe.busbw", "probe.transport"):
        evidence = [f["evidence"] for f in document["findings"] if f["rule"] == rule]
        named_all = [e for e in evidence if all(f"{n}={v}" in e for n, v in way.settings.items())]
        report.check(
            f"{way.name}: finding {rule} names it",
            ok=bool(named_all),
            told="; ".join(evidence) or "no finding",
        )


def _refused(here: Probing) -> None:
    """What NCCL refuses to do is no fault of a wire."""
    document = as_document(here.run("tree for all", changes={"NCCL_ALGO": "Tree"}))
    here.report.check(
        "NCCL_ALGO=Tree for collectives without one: the node is not called bad",
        ok=document["health"] in {"ok", "unknown"}, told=f"{document['outcome']}: {document['why']}",
    )  # fmt: skip


def _commands(report: Report) -> None:
    """The exit status that a script sees; what is wrong is looked at twice before it is believed."""
    changes = WAYS[0].settings
    for name, settings, wanted in (("healthy", {}, OK), (WAYS[0].name, changes, FAILED)):
        report.progress(f"wirewatch probe, {name}")
        status, document, seconds = command(changes=settings)
        report.note(**{f"command {name}": {"status": status, "seconds": seconds, "document": document}})
        findings = ", ".join(f"{f['rule']} {f['health']}" for f in document["findings"])
        report.check(
            f"wirewatch probe, {name}: exit status {wanted}", ok=status == wanted,
            told=f"{status} after {seconds:.1f} s, {document['outcome']}, {findings or 'no finding'}",
        )  # fmt: skip
