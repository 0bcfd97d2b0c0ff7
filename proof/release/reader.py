"""README's commands, to the letter, on a Debian with nothing but Python and make: proof/release/reader.md."""

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from proof.containers import LIMITS, debian, podman, run, store
from proof.image.running import get
from proof.rehearsal.services import free_port
from proof.release.place import PLACE, clone, running
from tests.waiting import until
from tools.prose import formatted
from tools.version import ROOT

HERE = PLACE / "reader"
IMAGE = "localhost/wirewatch-e2e-reader"
PAGE = Path(__file__).with_name("reader.md")
SECTION = "## Two commands"
PACKAGES = ("python3", "python3-venv", "make", "ca-certificates")
DAEMON = "make run"
PORT = 9410
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
"""Those of this machine, so that pip reaches the index that it reaches here."""
GRAPH = 'sum by (gpu) (rate(wirewatch_nvlink_transmit_bytes_total{gpu="3"}[30s]))'
"""A panel of the dashboard Node."""
SCRAPES = """
global: {{scrape_interval: 5s}}
scrape_configs: [{{job_name: wirewatch, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""
MOST_LINES = 24
VERDICTS = range(4)
"""Exit codes that are answers."""


def commands(text: str) -> list[str]:
    """What a reader types: of the section's blocks, the lines after `$ `, or all where no line has one."""
    section = text.partition(f"{SECTION}\n")[2].partition("\n## ")[0]
    found: list[str] = []
    for block in re.findall(r"^```\w*\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        lines = block.splitlines()
        typed = [line[2:] for line in lines if line.startswith("$ ")]
        found += typed or [line for line in lines if line.startswith("make ")]
    return found


def followed() -> str:
    """Each command in the shell of a user, on a clean clone."""
    typed = commands((ROOT / "README.md").read_text("utf-8"))
    assert typed, f"README.md has no commands under {SECTION}"
    assert typed[0].startswith(DAEMON), typed
    _image()
    here = clone(HERE / "clone")
    rows: list[str] = []
    busy = os.getloadavg()[0]
    with _machine(here) as inside:
        began = time.monotonic()
        with _started(inside, typed[0]) as log:
            metrics = until(
                log.read_text, lambda: 'wirewatch_health{health="ok"} 1.0' in get(PORT, "/metrics")[1], 600
            )
            assert metrics
            served = time.monotonic() - began
            assert "<svg" in get(PORT, "/")[1] or "<html" in get(PORT, "/")[1]
            points = _graph(began)
            rows.append(_transcript(typed[0], log.read_text("utf-8")))
            for line in (line for line in typed[1:] if not line.startswith(("make ", "open "))):
                done = _shell(inside, line)
                assert done.returncode in VERDICTS, (line, done.stdout, done.stderr)
                rows.append(_transcript(line, done.stdout + done.stderr, done.returncode))
        again = time.monotonic()
        with _started(inside, typed[0]) as log:
            until(log.read_text, lambda: get(PORT, "/livez")[0] == 200, 120)
            second = time.monotonic() - again
    told = (
        f"the first metrics {served:.0f} s after the first command, the first graph in Prometheus "
        f"(scraped every 5 s) after {points:.0f} s; a second `make run` answers after {second:.0f} s; "
        f"{os.cpu_count()} processors, which had a load of {busy:.0f} before"
    )
    _page(rows, told)
    return told


def _graph(began: float) -> float:
    """Seconds until a Prometheus beside it draws a line: two points or more of a panel's query."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "prometheus.yml").write_text(SCRAPES.format(port=PORT), "utf-8")
        with running(
            "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ):  # fmt: skip
            until("no graph", lambda: _points(port) >= 2, 120)
            return time.monotonic() - began


def _points(port: int) -> int:
    now = time.time()
    asked = f"/api/v1/query_range?query={quote(GRAPH)}&start={now - 60:.0f}&end={now:.0f}&step=5"
    text = get(port, asked)[1]
    series = json.loads(text)["data"]["result"] if text else []
    return len(series[0]["values"]) if series else 0


def _image() -> None:
    base = debian(HERE, *PACKAGES)
    container = run("buildah", *store(HERE), "from", "scratch").strip()
    try:
        run("buildah", *store(HERE), "add", "--quiet", container, str(base), "/")
        run("buildah", *store(HERE), "commit", "--quiet", container, IMAGE)
    finally:
        run("buildah", *store(HERE), "rm", container)


@contextmanager
def _machine(here: Path) -> Iterator[tuple[str, ...]]:
    """Words that run something in the machine, in the clone."""
    name = f"wirewatch-reader-{os.getpid()}"
    run(
        *podman(HERE), "run", "--detach", "--name", name, "--no-healthcheck", *LIMITS, "--network", "host",
        "--volume", "/etc/ssl/certs:/etc/ssl/certs:ro", "--env", f"PIP_CERT={CERTIFICATES}", IMAGE,
        "sleep", "7200",
    )  # fmt: skip
    try:
        run(*podman(HERE), "cp", f"{here}/.", f"{name}:/wirewatch")
        yield (*podman(HERE), "exec", "--workdir", "/wirewatch", name, "sh", "-c")
    finally:
        run(*podman(HERE), "rm", "--force", "--time", "1", name)


@contextmanager
def _started(inside: tuple[str, ...], line: str) -> Iterator[Path]:
    """The daemon while the block runs, ended as Ctrl-C does; its output."""
    log = HERE / "daemon.log"
    with log.open("wb") as opened:
        process = subprocess.Popen((*inside, line), stdout=opened, stderr=opened)
        try:
            yield log
        finally:
            # All processes of the machine but its first.
            _shell(inside, "kill -TERM -1")
            process.wait(60)


def _shell(inside: tuple[str, ...], line: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run((*inside, line), capture_output=True, text=True, timeout=600, check=False)


def _transcript(line: str, said: str, code: int = 0) -> str:
    lines = said.rstrip().splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 4], "...", *lines[-3:]]
    ended = [f"(exit status {code})"] if code else []
    mark = "<!-- not run: what a clean machine printed -->"
    return "\n".join((mark, "", "```console", f"$ {line}", *lines, *ended, "```"))


def _page(rows: list[str], told: str) -> None:
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    listed = ", ".join(PACKAGES)
    head = (
        f"# README's commands, followed\n\nLast result of `make e2e-release`, {day}, on a minimal Debian 12 "
        f"with {listed} and nothing else, in a fresh clone. No line was changed; long output is "
        f"shortened.\n\nSeen: {told}.\n\n"
    )
    PAGE.write_text(formatted(head + "\n\n".join(rows) + "\n"), "utf-8")
