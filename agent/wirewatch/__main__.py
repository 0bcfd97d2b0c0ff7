"""The composition root: `wirewatch` and `python -m wirewatch`."""

import sys

if __name__ == "__main__" and __file__ != f"{sys.path[0]}/wirewatch/__main__.py" and not sys.flags.safe_path:
    # `python -m` looks for modules in the current folder first, where anybody's may lie.
    del sys.path[0]

import gc
import signal
import time

BEGAN = time.monotonic()
"""Monotonic seconds before anything heavy is imported: the deadline of a command counts from here."""
INTERNAL = 70


def _exit(_number: int, _frame: object) -> None:
    """End on SIGTERM: with 0 for a daemon, else with 70, since 0 would read as the verdict OK."""
    command = next((text for text in sys.argv[1:] if not text.startswith("-")), "")
    sys.exit(0 if command in {"serve", "prober"} else INTERNAL)


def main() -> None:
    """Run the command line.

    The signal handler comes first: without it, process 1 of a container ignores SIGTERM during the imports.
    """
    signal.signal(signal.SIGTERM, _exit)
    # Imported objects stay, and collecting garbage meanwhile costs a tenth of the time.
    gc.disable()
    from wirewatch.cli import run

    sys.exit(run(sys.argv[1:], BEGAN))


if __name__ == "__main__":
    main()
