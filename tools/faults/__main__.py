"""Play faults, and write docs/faults.md: `make faults`.

    python -m tools.faults [--check] [NAME ...]

With names these alone are played, and printed; with --check the page is only compared.
"""

import argparse
import logging
import sys
from concurrent.futures import ProcessPoolExecutor

from tools.faults.course import course
from tools.faults.page import PAGE, page, section
from wirewatch.hw.overlay import bundled_overlays


def main() -> int:
    """Play, and write, print or compare; 1 when the page is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="name the page if it is stale, and write nothing"
    )
    parser.add_argument("names", nargs="*", choices=[[], *bundled_overlays()], metavar="NAME", help="faults")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(initializer=logging.disable) as pool:
        courses = list(pool.map(course, arguments.names or bundled_overlays()))
    if arguments.names:
        print("\n".join(map(section, courses)))
        return 0
    made = page(courses)
    if not arguments.check:
        PAGE.write_text(made, "utf-8")
        return 0
    stale = not PAGE.exists() or PAGE.read_text("utf-8") != made
    print("stale: docs/faults.md: run make faults" if stale else "", end="\n" if stale else "")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
