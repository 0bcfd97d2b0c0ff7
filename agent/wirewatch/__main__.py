"""The composition root: `wirewatch` and `python -m wirewatch`."""

import signal
import sys


def _exit(_number: int, _frame: object) -> None:
    sys.exit(0)


def main() -> None:
    """Run the command line.

    The signal handler comes first: as process 1 of a container nothing else would end us while we import.
    """
    signal.signal(signal.SIGTERM, _exit)
    from wirewatch.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
