"""How many files of the agent one has to open to follow a value: three walks, run and watched.

    python -m tools.walks [--json]

Each walk runs alone in a process of its own, over a bundled recording, and is watched with sys.setprofile in
all threads. A file is counted when one of its functions is entered between the reading and the text. Not
counted are imports (the bodies of modules and classes, and what they call), what dataclasses generate, and
the files that play the recording with what they call, since they stand where hardware is.
"""

import argparse
import http.server
import inspect
import io
import json
import os
import socketserver
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from types import CodeType, FrameType, TracebackType
from typing import NoReturn, Self
from unittest.mock import patch

from tests.support import Node
from tools.imports import PACKAGE, ROOT
from wirewatch import cli
from wirewatch.core.collector import NodeState
from wirewatch.documents import judged, state
from wirewatch.hw.overlay import Overlay, Player, ReplayNvml, load_overlay, within
from wirewatch.hw.recording import Recording
from wirewatch.hw.replay import ReplayProbe
from wirewatch.server.exposition import Exposition
from wirewatch.verdict.ledger import Ledger
from wirewatch.verdict.node import Judged, judge_node

AGENT = f"{ROOT}/agent/{PACKAGE}/"
DEMO = "demo-dgx-h200"
_PLAYERS = (Overlay, Player, Recording, ReplayNvml, ReplayProbe, within)
PLAYING = {inspect.getsourcefile(player) for player in _PLAYERS}
"""The files that answer for the hardware."""
POLL, BEGIN, PROBES = 15.0, 30.0, 300.0
"""Seconds between polls; into the recording, when its faults have begun; and between turns of the probe."""
FAILED = 2


class Watch:
    """The files of the agent whose functions are entered meanwhile, in order, each with the first of them."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self._importing = threading.local()
        self._playing = threading.local()

    def __enter__(self) -> Self:
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _event(self, frame: FrameType, event: str, _argument: object) -> None:
        code, depth = frame.f_code, getattr(self._importing, "depth", 0)
        if code.co_name == "_find_and_load" and code.co_filename == "<frozen importlib._bootstrap>":
            self._importing.depth = depth + {"call": 1, "return": -1}.get(event, 0)
        elif code.co_filename in PLAYING:
            self._playing.depth = getattr(self._playing, "depth", 0) + {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not depth and not getattr(self._playing, "depth", 0) and _counts(code):
            self.files.setdefault(code.co_filename.removeprefix(AGENT), code.co_qualname)


def _counts(code: CodeType) -> bool:
    # Only functions have locals of the fast kind; bodies of modules and classes do not.
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
    return is_function and code.co_filename.startswith(AGENT)


def counter_to_text() -> dict[str, str]:
    """An NVLink counter to /metrics: the collector's reading, its samples, the state and the text."""
    node = _node("nvlink")
    with Watch() as watch:
        node.poll("nvlink")
        text = _text(node)
    _must("wirewatch_nvlink_transmit_bytes_total" in text, "no NVLink counter in the text")
    return watch.files


def link_to_exit() -> dict[str, str]:
    """A link down to exit 2 of check: seen in three polls, in the daemon's /health, which check asks for.

    The document comes over a real Unix socket, from a server of the standard library.
    """
    node = _node("nvlink", "nvlink-link-down")
    node.clock.seconds = BEGIN
    with tempfile.TemporaryDirectory() as folder, Watch() as watch:
        node.poll("nvlink", times=3, every=POLL)
        daemon = judged.DaemonStatus(time.time(), node.clock.mono(), True, 0.0, False)  # noqa: FBT003
        body = state.HEALTH.dump_json(judged.health(_judged(node), daemon))
        with _answering(f"{folder}/daemon", body) as socket:
            code, out = _command("check", "--socket", socket, "--deadline", "60s")
    _must(code == FAILED and "nvlink.link_down" in out, f"check ended with {code}: {out}")
    return watch.files


def probe_to_straggler() -> dict[str, str]:
    """A probe to its ratio and straggler: gate, order, result, verdict, and the text with both series."""
    node = _node("probe", "straggler-source")
    with Watch() as watch:
        node.poll("probe", times=4, every=PROBES)
        text = _text(node)
    for series in ("wirewatch_probe_busbw_ratio{", "wirewatch_straggler{"):
        _must(series in text, f"no {series} in the text")
    return watch.files


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk and what it is, in short."""

    name: str
    about: str
    run: Callable[[], dict[str, str]]


WALKS = (
    Walk("counter", "an NVLink counter to /metrics", counter_to_text),
    Walk("link", "a link down to exit 2 of check", link_to_exit),
    Walk("probe", "a probe to its ratio and straggler", probe_to_straggler),
)


def walked() -> dict[str, dict[str, str]]:
    """The files of each walk, in the order in which they are entered, with the first function entered."""
    # Caches that one walk fills would hide files from the next.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        found = {walk.name: pool.submit(walk.run) for walk in WALKS}
        return {name: future.result() for name, future in found.items()}


def _node(collector: str, *overlays: str) -> Node:
    """The demo node with one collector."""
    node = Node(DEMO, [change for name in overlays for change in load_overlay(name).changes])
    node.state = NodeState({collector: node.state.components[collector]})
    return node


def _judged(node: Node) -> Judged:
    ledger = Ledger()
    return Judged(node.state, judge_node(node.state, ledger), ledger, time.time(), 0.0)


def _text(node: Node) -> str:
    text = Exposition("replay").render(_judged(node)).text
    return text.decode()


def _must(holds: bool, otherwise: str) -> None:  # noqa: FBT001
    if not holds:
        raise SystemExit(f"the walk does not end where it should: {otherwise}")


@contextmanager
def _answering(path: str, body: bytes) -> Iterator[str]:
    """A daemon that answers one request with a document; yields its socket's path."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with socketserver.UnixStreamServer(path, Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield path
        thread.join()


def _exit(code: int) -> NoReturn:
    raise SystemExit(code)


def _command(*arguments: str) -> tuple[object, str]:
    """The exit code of a command that is run in this process, and what it prints."""
    with patch.object(os, "_exit", _exit), redirect_stdout(io.StringIO()) as out:
        try:
            return cli.run(arguments), out.getvalue()
        except SystemExit as end:
            return end.code, out.getvalue()


def main() -> None:
    """Print the files that each walk enters."""
    parser = argparse.ArgumentParser(description="Files that a value passes on three walks.")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    as_json = parser.parse_args().json
    found = walked()
    if as_json:
        document = {
            walk.name: {
                "about": walk.about, "count": len(found[walk.name]), "files": found[walk.name],
            }
            for walk in WALKS
        }  # fmt: skip
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    for walk in WALKS:
        files = found[walk.name]
        sys.stdout.write(f"{len(files)} files: {walk.about}\n")
        sys.stdout.writelines(f"    {path:40} {function}\n" for path, function in files.items())


if __name__ == "__main__":
    main()
