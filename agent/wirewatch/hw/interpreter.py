"""Our own modules as processes: a Python that loads no code from the current folder.

The current folder may be anybody's: a job's, or a user's in which root runs a command. So our processes work
in a folder of root's, and nothing that is named without a place is found where the command was called: no
module, no library of a LD_LIBRARY_PATH with an empty entry, no core file. What an administrator has placed by
name, in PYTHONPATH or a virtual environment, is found as before.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

FOLDER = "/"
"""Where every process that we start works."""
_OURS = str(Path(__file__).parents[2])
"""The folder of the package wirewatch."""


def python(*words: str) -> tuple[str, ...]:
    """The command of this Python with these words, without the current folder among the places of modules.

    What this process ignores, the environment or the user's own packages, the other one ignores too.
    """
    alike = (("-E", sys.flags.ignore_environment), ("-s", sys.flags.no_user_site))
    return (sys.executable, "-P", *(option for option, given in alike if given), *words)


def module_places(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment with a PYTHONPATH that means the same in FOLDER as here, but for the current folder.

    An empty entry is the current folder by accident, and goes. The current folder stays where wirewatch
    itself was started from there.
    """
    given = [entry for entry in inherited.get("PYTHONPATH", "").split(os.pathsep) if entry]
    places = [absolute(entry) for entry in given]
    here = absolute(".")
    if here == _OURS and here not in places:
        places = [here, *places]
    rest = {name: value for name, value in inherited.items() if name != "PYTHONPATH"}
    return {**rest, "PYTHONPATH": os.pathsep.join(places)} if places else rest


def absolute(path: str) -> str:
    """The path for a process that works in FOLDER; as it is where the current folder is gone."""
    try:
        return os.path.abspath(path)  # noqa: PTH100 - `..` is resolved too
    except FileNotFoundError:
        return path
