"""Every example of help is played as it stands, beside a daemon of a node, and does what its command says."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.node.daemon.process import FAST, Daemon
from tests.rows import each
from tests.tools.examples import lasts, play, stage
from tools.commands import commands, examples

VERDICTS = range(4)
"""Exit codes of a command that did what it was asked."""
HEALTHY = ("topology accept", "topology baseline", "topology diff", "topology expect", "serve", "prober")
"""Commands whose examples are typed on a node that is well."""
LACKING: Mapping[str, tuple[int, str]] = {
    "wirewatch advise nccl-env --for": (78, "describe one with --machine, such as 8xH100"),
    "wirewatch explain slurm:4711": (64, "no job slurm:4711 runs on this node's GPUs"),
    "wirewatch fleet controller": (78, "No such file or directory|API server|KUBERNETES"),
    "wirewatch fleet probe --slurm": (69, "sinfo"),
    "wirewatch fleet status --prometheus": (69, "http://prometheus:9090: "),
    "wirewatch hold": (70, "/run/wirewatch-holds: .*docs/giving-way.md says how it is made"),
    "wirewatch sweep --out": (3, "skipped: no_engine"),
    "wirewatch sweep --resume": (64, "holds no sweep"),
}
"""Lines that need what is not here: a GPU, a job, a cluster, a folder that root makes; with its answer."""
ORDERS = tuple(f"wirewatch findings {one}" for one in ("ack", "repaired", "suppress", "unsuppress"))
"""Orders about a finding, each of which needs the state that the one before has made."""
LINES = [(words, line) for words, command in commands() for line in examples(command)]


def is_healthy(words: str) -> bool:
    return words.removeprefix("wirewatch ").startswith(HEALTHY)


@contextmanager
def staged(folder: Path, *arguments: str) -> Iterator[Mapping[str, str]]:
    """A daemon of the demo's node, and the environment of somebody who types beside it."""
    runtime = folder / "runtime"
    runtime.mkdir()
    socket = f'socket = "{runtime}/wirewatch.sock"'
    learns = "[policy.drift]\nlearn = 1\n[drift]\ninterval = 0.3\n[collectors.topology]\ninterval = 0.3\n"
    with Daemon(arguments, runtime, FAST.replace('socket = ""', socket) + learns) as daemon:
        daemon.ready()
        if "--overlay" in arguments:
            daemon.wait("/health", '"id"')
        yield stage(folder / "home", runtime)


def complaint(line: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What is wrong with how a line ended; empty where it did what it says."""
    code, text = play(line, folder, environment)
    wanted = next((answer for begins, answer in LACKING.items() if line.startswith(begins)), None)
    if wanted is not None:
        right = code == wanted[0] and bool(re.search(wanted[1], text))
    else:
        logs = "" if lasts(line.split()) else r"|^\S+ \S+ (WARNING|ERROR) "
        right = code in VERDICTS and not re.search(f"Traceback{logs}", text, re.MULTILINE)
    return "" if right else f"{line}: {code}: {text[:300]}"


@pytest.mark.parametrize("healthy", [False, True], ids=["a link is down", "healthy"])
def test_every_example_does_what_it_says(tmp_path: Path, *, healthy: bool) -> None:
    """In the order of the page: a release is taken back, and what was recorded is played."""
    fault = () if healthy else ("--overlay", "nvlink-link-down")
    with staged(tmp_path, "--replay", "demo-dgx-h200", *fault) as environment:
        own = [one for words, one in LINES if is_healthy(words) is healthy and not one.startswith(ORDERS)]
        assert len(own) > 5
        wrong = [complaint(line, tmp_path / "home", environment) for line in own]
    assert not [one for one in wrong if one], "\n".join(wrong)


@each("begins", [*LACKING, *ORDERS])
def test_what_is_not_played_whole_is_an_example(begins: str) -> None:
    assert any(line.startswith(begins) for _, line in LINES)
