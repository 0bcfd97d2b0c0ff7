"""`python -m proof.fleet.scrape [--nodes N]... [--tier core] [--write]`: measures a fleet.

`--write` keeps the figures (proof/fleet/scrape/results.json), proof/fleet/scrape/fleet.md and its plots.
"""

import argparse
import json
from contextlib import suppress
from pathlib import Path

from proof.fleet.scrape.measuring import measure
from proof.fleet.scrape.page import keep, load, write

SIZES = (100, 500, 2000)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a fleet costs a real Prometheus.")
    parser.add_argument("--nodes", type=int, action="append", help="repeatable")
    parser.add_argument(
        "--tier", choices=("core", "full"), action="append", help="repeatable; core by default"
    )
    parser.add_argument("--write", action="store_true", help="keep the figures, the page and its plots")
    parser.add_argument("--page", action="store_true", help="make the page of the figures that are kept")
    given = parser.parse_args()
    if given.page:
        write(load())
        return
    # Linux shares processors between sessions first: without this nice counts in this session alone.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("-19", "utf-8")
    for tier in given.tier or ("core",):
        for nodes in given.nodes or SIZES:
            found = measure(nodes, tier)
            print(json.dumps(found.document(), indent=1), flush=True)
            if given.write:
                write(keep([found]))


if __name__ == "__main__":
    main()
