"""The composition root: `wirewatch` and `python -m wirewatch`."""

import gc
import signal
import sys
import time

BEGAN = time.monotonic()
"""Before anything of weight is imported: a command with a deadline counts from here."""
INTERNAL = 70


def _exit(_number: int, _frame: object) -> None:
    """A daemon told to stop has done its work; any other command has not, and 0 would read as OK."""
    command = next((text for text in sys.argv[1:] if not text.startswith("-")), "")
    sys.exit(0 if command in {"serve", "prober"} else INTERNAL)


def main() -> None:
    """Run the command line.

    The signal handler comes first: as process 1 of a container nothing else would end us while we import.
    """
    signal.signal(signal.SIGTERM, _exit)
    # What is imported stays; to look for garbage meanwhile costs a tenth of the time.
    gc.disable()
    from wirewatch.cli import run

    sys.exit(run(sys.argv[1:], BEGAN))


if __name__ == "__main__":
    main()
