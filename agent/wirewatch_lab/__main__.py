"""`python -m wirewatch_lab`: the command line with the lab, from a tree that is not installed."""

from wirewatch.__main__ import main
from wirewatch.cli import cli
from wirewatch_lab.cli import COMMANDS

if __name__ == "__main__":
    cli.offer(COMMANDS)
    main()
