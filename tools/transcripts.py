"""What commands print in pages of docs/advice: `make generated` runs them again.

A block that begins with `$ wirewatch advise ...` is a command with its output, run at the root of the tree.
They are of described machines, so that they print the same everywhere.
"""

import re
import shlex
from contextlib import chdir
from pathlib import Path

from click.testing import CliRunner

from wirewatch_lab.cli.advise import advise

ROOT = Path(__file__).parents[1]
_PAGES = ("cost.md", "gpu-nic.md", "nccl-env.md", "placement.md")
PAGES = tuple(ROOT / "docs" / "advice" / name for name in _PAGES)
REFUSED = 2
"""How a placement ends that there is not."""
_BLOCK = re.compile(r"(?<=```console\n)\$ wirewatch advise (.*)\n(?:.*\n)*?(?=```)")


def page(text: str) -> str:
    """The page with the output that its commands have today."""
    return _BLOCK.sub(lambda found: f"$ wirewatch advise {found[1]}\n{_output(found[1])}", text)


def _output(words: str) -> str:
    """Standard output of a command.

    Raises:
        RuntimeError: it does not end with an answer.
    """
    with chdir(ROOT):
        done = CliRunner().invoke(advise, shlex.split(words))
    if done.exit_code not in {0, REFUSED}:
        raise RuntimeError(f"wirewatch advise {words}: {done.output}") from done.exception
    return done.stdout
