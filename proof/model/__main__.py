"""Plays jobs of known truth through the collectors of running jobs: `make model`, proof/model/results.md.

`python -m proof.model --seeds 3 late` plays three jobs of each family with `late` in its name, and prints.
"""

import argparse

from proof.model.page import PAGE, page
from proof.model.results import FILE, commit, kept, known, run
from proof.model.rings import DEFAULT, SAMPLINGS


def main() -> None:
    """Play, print, and with --write keep what came of it."""
    parser = argparse.ArgumentParser(prog="proof.model")
    parser.add_argument("names", nargs="*", help="parts of the names of families; all without")
    parser.add_argument("--seeds", type=int, default=3, help="jobs of each family")
    parser.add_argument(
        "--sampling", default=DEFAULT, choices=list(SAMPLINGS), help="which calls the tap times"
    )
    parser.add_argument("--write", action="store_true", help="keep results.json and results.md")
    asked = parser.parse_args()
    families, seconds = run(asked.seeds, known(asked.names), asked.sampling)
    text = page(families, asked.seeds, asked.sampling, commit())
    print(text)
    print(f"{seconds:.0f} s of CPU")
    if asked.write:
        FILE.write_text(kept(families, asked.seeds, asked.sampling, commit()), "utf-8")
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
