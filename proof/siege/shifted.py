"""`wirewatch serve` whose clock is off by the seconds in a file, which may change while it runs.

Not libfaketime: with an offset that makes the pauses of Python 3.11 fail, which wait until an absolute time.
"""

import os
import runpy
import time

VARIABLE = "SIEGE_CLOCK"
"""Of the environment: the file."""


def main() -> None:
    real, file = time.time, os.open(os.environ[VARIABLE], os.O_RDONLY)
    time.time = lambda: real() + float(os.pread(file, 64, 0))
    runpy.run_module("wirewatch", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
