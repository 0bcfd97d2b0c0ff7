"""`make rehearsal`: every fault and a healthy day through the real daemon, Prometheus and Alertmanager.

With names, these faults alone. Exit status 1 if anything did not come as it should; the logs are kept then.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil

from proof.rehearsal.day import Lived, live
from proof.rehearsal.faults import Played, lasts, play, play_well
from proof.rehearsal.fleet import STARTING, fleet, make_past, shipped_rules
from proof.rehearsal.pace import here, in_service, waits_of
from proof.rehearsal.page import PAGE, page
from proof.rehearsal.results import Results, as_json
from proof.rehearsal.table import ALL

OUT = Path("build/rehearsal")
SLOTS = 8
"""Nodes at the same time for each processor; each takes 3 % of one, and two seconds of it to start.

With twice as many, nodes go unscraped for more than a tenth of the time.
"""


def main() -> int:
    wanted = _wanted()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_all)
    began = time.monotonic()
    # Short: the path of a socket may have 108 characters.
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-"))
    starting = threading.Semaphore(STARTING)
    with ThreadPoolExecutor(1) as apart:
        day = apart.submit(live, folder / "day", starting) if wanted.day else None
        played, troubles = _faults(folder, wanted, starting)
        results = Results(played, day.result() if day else Lived((), ()), troubles, time.monotonic() - began)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "results.json").write_text(as_json(results), "utf-8")
    if wanted.write and not results.every_trouble():
        waits = waits_of(shipped_rules())
        PAGE.write_text(page(results, in_service(waits)), "utf-8")
    return _end(results, folder)


def _end_all(number: int, _frame: object) -> None:
    """On a signal: no process that we started stays, and the threads that wait for them need not."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    os._exit(128 + number)


def _wanted() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*ALL, []], default=[], metavar="NAME")
    parser.add_argument("--write", action="store_true", help=f"{PAGE.name}, if nothing failed")
    parser.add_argument("--slots", type=int, default=SLOTS * (os.cpu_count() or 1), help="nodes at a time")
    parser.add_argument("--no-day", dest="day", action="store_false", help="without the healthy day")
    wanted = parser.parse_args()
    if wanted.write and (wanted.names or not wanted.day):
        parser.error("--write is for the whole rehearsal")
    return wanted


def _faults(
    folder: Path, wanted: argparse.Namespace, starting: threading.Semaphore
) -> tuple[tuple[Played, ...], tuple[str, ...]]:
    pace = here(waits_of(shipped_rules()))
    order = sorted(wanted.names or ALL, key=lambda name: -lasts(name, ALL[name], pace))
    past = make_past(folder / "past")
    over = threading.Event()
    with (
        fleet(folder / "faults", past, starting, apart=True) as watched,
        ThreadPoolExecutor(1) as beside,
        ThreadPoolExecutor(wanted.slots) as pool,
    ):
        well = beside.submit(play_well, watched, over)
        try:
            played = [
                _tell(one) for one in pool.map(lambda name: play(watched, name, ALL[name], pace), order)
            ]
        finally:
            over.set()
        troubles = (*well.result(), *watched.prometheus.troubles(), *watched.receiver.troubles)
    return tuple(sorted(played, key=lambda one: list(ALL).index(one.name))), troubles


def _tell(played: Played) -> Played:
    seconds = "; ".join(
        f"{t.alert}: {t.fired or 0:.0f} s, {t.cleared or 0:.0f} s" for t in played.judged.told
    )
    print(
        f"{'FAILED' if played.judged.troubles else 'ok':6} {played.name}: {seconds or 'nothing'}", flush=True
    )
    for trouble in played.judged.troubles:
        print(f"       {trouble}", flush=True)
    return played


def _end(results: Results, folder: Path) -> int:
    troubles = results.every_trouble()
    for trouble in troubles:
        print(f"FAILED {trouble}")
    print(
        f"{len(results.played)} faults, {len(troubles)} troubles, {results.seconds:.0f} s; {OUT}/results.json"
    )
    if troubles:
        print(f"logs: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
