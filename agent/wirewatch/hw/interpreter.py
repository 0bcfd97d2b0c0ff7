"""Our own modules as processes: a Python that loads no code from the current folder.

The current folder may be anybody's: a job's, or a user's in which root runs a command. So our processes work
in a folder of root's. They find no module, library or core file in the caller's folder. A path that an
administrator has set, as in PYTHONPATH, works as before.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

FOLDER = "/"
"""Where every process that we start works."""
_OURS = str(Path(__file__).parents[2])


def python(*words: str) -> tuple[str, ...]:
    """Return the command of this Python with these words, without the current folder as a place of modules.

    The environment or the user's own packages are ignored as in this process.
    """
    alike = (("-E", sys.flags.ignore_environment), ("-s", sys.flags.no_user_site))
    return (sys.executable, "-P", *(option for option, given in alike if given), *words)


def module_places(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with a PYTHONPATH that means the same in FOLDER as here.

    The current folder, which an empty entry adds by accident, stays only where wirewatch was started from it.
    """
    given = [entry for entry in inherited.get("PYTHONPATH", "").split(os.pathsep) if entry]
    places = [absolute(entry) for entry in given]
    if absolute(".") == _OURS:
        places = [_OURS, *places]
    rest = {name: value for name, value in inherited.items() if name != "PYTHONPATH"}
    return {**rest, "PYTHONPATH": os.pathsep.join(places)} if places else rest


def absolute(path: str) -> str:
    """Return the path for a process that works in FOLDER; unchanged where the current folder is gone."""
    try:
        return os.path.abspath(path)  # noqa: PTH100 - `..` is resolved too
    except FileNotFoundError:
        return path
