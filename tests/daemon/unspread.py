"""`wirewatch`, as the only node that tells its API server: its requests need no spread of seconds."""

import sys

from wirewatch.cli import run
from wirewatch.kubernetes import outcome

if __name__ == "__main__":
    outcome.SPREAD = 0.5
    sys.exit(run(sys.argv[1:]))
