"""Somebody computes on a GPU: no probe starts, and the node is no worse for it."""

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from proof.hardware import processes
from proof.hardware.daemon import Daemon, every
from proof.hardware.job import Job
from proof.hardware.kit import Report
from proof.hardware.probing import MODULE, Probing, command
from proof.hardware.scrape import Scrape

UNKNOWN = 3
INTERVAL = 2.0
SKIPS = 3
SKIPS_WITHIN = 40.0
PROBED_WITHIN = 60.0
_PROBE = "[probe]\ninterval = 1.0\nprobe_interval = 3.0\njitter = 0.0\nsettle = 2.0\nbudget = 1.0\n"


def run(here: Probing) -> None:
    before = here.used()
    with (
        tempfile.TemporaryDirectory(prefix="wirewatch-kit-") as folder,
        Job("foreign", "0", "--compute") as busy,
    ):
        busy.wait("READY", 60)
        busy.send("go")
        busy.wait("UP", 60)
        here.report.attempt("the command beside a job", lambda: _command(here.report))
        config = f'{every(INTERVAL, link_detail=False, probe=_PROBE)}[state]\ndirectory = "{folder}"\n'
        with Daemon(config) as daemon:
            here.report.attempt("the daemon beside a job", lambda: _beside(here.report, daemon, busy))
            busy.stop()
            here.report.attempt("the daemon after the job", lambda: _afterwards(here.report, daemon))
            here.report.note(daemon_log=daemon.log())
    left = here.left(before)
    here.report.check("a busy node: no process is left, memory is as before", ok=not left, told=left)


@contextmanager
def _workers() -> Iterator[set[int]]:
    """The workers that show up meanwhile."""
    found: set[int] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.02):
            found.update(processes.with_argument(MODULE))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def _command(report: Report) -> None:
    report.progress("wirewatch probe beside a job")
    with _workers() as started:
        status, document, seconds = command()
    report.note(busy_command={"status": status, "seconds": seconds, "document": document})
    busy = document["outcome"] == "skipped" and document["why"].startswith("busy: ")
    report.check(
        f"wirewatch probe beside a job: exit status {UNKNOWN}, reason busy", ok=status == UNKNOWN and busy,
        told=f"{status} after {seconds:.1f} s, {document['outcome']}: {document['why']}",
    )  # fmt: skip
    report.check(
        "wirewatch probe beside a job: no worker is started", ok=not started, told=str(started or "")
    )


def _told(daemon: Daemon, scrape: Scrape) -> dict[str, Any]:
    health = json.loads(daemon.get("/health").body)
    return {
        "skips": scrape.value("probe_skips_total", reason="busy"),
        "runs": sum(value for _, value in scrape.find("probe_runs_total")),
        "ok": scrape.value("probe_runs_total", result="ok"),
        "job_ready": scrape.value("job_ready"),
        "health": health["health"],
        "findings": [f["rule"] for f in health["findings"]],
    }


def _beside(report: Report, daemon: Daemon, busy: Job) -> None:
    """Several probes come due while the job runs."""
    report.progress("the daemon beside a job")
    daemon.fresh(time.time())
    told: list[dict[str, Any]] = []
    end = time.monotonic() + SKIPS_WITHIN
    with _workers() as started:
        while not told or ((told[-1]["skips"] or 0) < SKIPS and time.monotonic() < end):
            busy.must_run()
            told.append(_told(daemon, daemon.scrape()))
            time.sleep(0.5)
    report.note(busy_daemon=told)
    last = told[-1]
    report.check(f"the daemon counts {SKIPS} skips as busy", ok=(last["skips"] or 0) >= SKIPS, told=str(last))
    report.check(
        "the daemon starts no worker beside a job",
        ok=not started and last["runs"] == 0,
        told=str(started or ""),
    )
    findings = sorted({rule for one in told for rule in one["findings"]})
    ready = {one["job_ready"] for one in told}
    report.check(
        "a busy node has no finding and takes the next job", ok=not findings and ready == {1.0},
        told=f"{len(told)} scrapes, job_ready {ready}, findings {findings}",
    )  # fmt: skip


def _afterwards(report: Report, daemon: Daemon) -> None:
    """The same daemon probes once the GPUs are free: that it did not before was for the job's sake."""
    report.progress("the daemon after the job")
    began = time.monotonic()
    last: dict[str, Any] = {}
    while not last.get("ok") and time.monotonic() < began + PROBED_WITHIN:
        time.sleep(0.5)
        last = _told(daemon, daemon.scrape())
    report.check(
        f"the daemon probes within {PROBED_WITHIN:g} s of the job's end", ok=bool(last.get("ok")),
        told=f"{time.monotonic() - began:.1f} s: {last}",
    )  # fmt: skip
    report.check("and finds nothing", ok=not last["findings"] and last["job_ready"] == 1, told=str(last))
