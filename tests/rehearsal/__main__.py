"""`python -m tests.rehearsal [NAME ...]`: faults and a healthy day through the daemon, Prometheus and Alertmanager."""

import argparse
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.rehearsal.faults import Played, lasts, play
from tests.rehearsal.fleet import STARTING, fleet, make_past, shipped_rules
from tests.rehearsal.pace import here, waits_of
from tests.rehearsal.table import TABLE

SLOTS = 20


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(TABLE))
    names = parser.parse_args().names
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-"))
    pace = here(waits_of(shipped_rules()))
    past = make_past(folder / "past")
    print(folder, flush=True)
    order = sorted(names, key=lambda name: -lasts(name, TABLE[name], pace))
    bad = 0
    with fleet(folder / "faults", past, threading.Semaphore(STARTING)) as one:
        with ThreadPoolExecutor(SLOTS) as pool:
            for played in pool.map(lambda name: play(one, name, TABLE[name], pace), order):
                print(played.name, *(f"{t.alert}: {t.fired} {t.cleared}" for t in played.judged.told), sep="\n   ")
                for t in played.judged.troubles:
                    bad += 1
                    print("   !!", t, flush=True)
        print(one.prometheus.troubles(), one.receiver.troubles)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
