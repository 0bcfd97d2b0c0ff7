"""`python -m proof.fleet [--nodes N]... [--tier core] [--write]`: measures a fleet, and makes the page.

`--write` keeps the figures (proof/fleet/results.json), docs/fleet.md and its plots.
"""

import argparse
import json

from proof.fleet.measuring import measure

SIZES = (100, 500, 2000)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a fleet costs a real Prometheus.")
    parser.add_argument("--nodes", type=int, action="append", help="repeatable")
    parser.add_argument(
        "--tier", choices=("core", "full"), action="append", help="repeatable; core by default"
    )
    given = parser.parse_args()
    for tier in given.tier or ("core",):
        for nodes in given.nodes or SIZES:
            print(json.dumps(measure(nodes, tier).document(), indent=1), flush=True)


if __name__ == "__main__":
    main()
