"""The golden texts: what /metrics says for each bundled recording, collector by collector, and others.

After a change that was meant: `make generated`, and read the difference before committing it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.node.collectors.test_overlays import DEMO, watch
from tests.node.jobs.explain.cases import CASES, printed
from tests.node.page.pages import lines
from tests.node.page.states import state
from tests.support import Node
from wirewatch import __version__
from wirewatch.cli.findings import ticket
from wirewatch.documents.finding import FINDING, evidence
from wirewatch.documents.state import PREFIX
from wirewatch.hw.overlay import load_overlay
from wirewatch.hw.recording import bundled_names, load_recording
from wirewatch.page import html
from wirewatch.server.exposition import Exposition
from wirewatch.verdict.node import judge_state

HERE = Path(__file__).parent
DAEMON = "daemon"
"""The golden of what no collector makes."""
FAULTS = ("gpu-ecc-uncorrected", "nvlink-link-down", "ib-port-slow")
PAGES = (
    "link-down", "gpu-lost", "drifted", "first-seconds", "one-gpu", "stale", "jobs", "hung", "hinted",
    "straggler", "denied", "port-down", "mig", "suppressed", "released",
)  # fmt: skip
_COLLECTOR = re.compile(r'\bcollector="(\w+)"')


def made() -> Mapping[Path, str]:
    """Every golden text by its path."""
    recordings = {
        HERE / name / f"{part}.txt": text
        for name in bundled_names()
        for part, text in expositions(name).items()
    }
    findings = {HERE / f"finding-{name}.txt": shown(name) for name in FAULTS}
    explained = {HERE / "explain" / f"{name}.txt": text for name, text in printed().items()}
    return explained | recordings | findings | {HERE / "pages" / f"{name}.txt": drawn(name) for name in PAGES}


def stray() -> tuple[Path, ...]:
    """Golden texts of what is no more."""
    folders = {HERE / name for name in bundled_names()}
    parts = {*Node().collectors, DAEMON}
    kept = {HERE / f"finding-{name}.txt" for name in FAULTS}
    kept |= {HERE / "explain" / f"{name}.txt" for name in CASES}
    kept |= {HERE / "pages" / f"{name}.txt" for name in PAGES}
    kept |= {folder / f"{part}.txt" for folder in folders for part in parts}
    return tuple(path for path in sorted(HERE.rglob("*.txt")) if path not in kept)


@cache
def expositions(recording: str) -> Mapping[str, str]:
    """The series and findings of each collector, at the first and the last moment of a recording."""
    texts: dict[str, list[str]] = {name: [] for name in (DAEMON, *Node().collectors)}
    for node in played(recording):
        for made in texts.values():
            made.append(f"# at {node.clock.seconds:g} s of {recording}")
        for name, line in _owned(node):
            texts[name].append(line)
        for name, component in node.state.components.items():
            texts[name] += [
                f"# {one.rule} {one.health.name} {one.subject}: {one.evidence} -> {one.action}"
                for one in component.findings
            ]
    return {name: "\n".join(made) + "\n" for name, made in texts.items()}


def played(recording: str) -> Iterator[Node]:
    """The node of a recording at its first and at its last moment."""
    node = Node(recording)
    node.options("probe", settle=0.0)
    for seconds in (0.0, load_recording(recording).times[-1]):
        node.clock.seconds = seconds
        node.poll(every=0.0)
        yield node


def metrics(node: Node) -> str:
    """All of /metrics."""
    text = Exposition("replay").render(judge_state(node.state)).text
    return text.decode()


def _owned(node: Node) -> list[tuple[str, str]]:
    """Each line of /metrics with the collector whose it is."""
    owner = {f"{PREFIX}{m.name}": c.name for c in node.collectors.values() for m in c.metrics}
    found = []
    for line in metrics(node).splitlines():
        family = re.split(r"[ {]", line.removeprefix("# HELP ").removeprefix("# TYPE "), maxsplit=1)[0]
        of = _COLLECTOR.search(line)
        found.append((owner.get(family) or (of[1] if of else DAEMON), line))
    return found


def shown(fault: str) -> str:
    """What `wirewatch findings show` prints of the one finding of a fault, but for our own version."""
    node = Node(DEMO, load_overlay(fault).changes)
    watch(node)
    here = judge_state(node.state)
    (one,) = here.verdict.standings
    document = FINDING.dump_json(evidence(here, one.id, node.clock.now(), "synthetic"))
    text = ticket(json.loads(document))
    assert text.count(f"  {__version__}\n") == 1
    return text.replace(f"  {__version__}\n", "  VERSION\n") + "\n"


def drawn(name: str) -> str:
    """What the status page says of a state, line by line."""
    return "\n".join(lines(html.page(state(name)))) + "\n"
