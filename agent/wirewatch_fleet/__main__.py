"""`python -m wirewatch_fleet`: the command line with the fleet, from a tree that is not installed."""

from wirewatch.__main__ import main
from wirewatch.cli import cli
from wirewatch_fleet.cli import COMMANDS

if __name__ == "__main__":
    cli.offer(COMMANDS)
    main()
