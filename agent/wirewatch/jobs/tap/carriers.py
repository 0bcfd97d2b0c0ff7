"""Find the processes of this machine that map the tap, by /proc."""

import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

from wirewatch.jobs.tap.tapfile import LIBRARY

PATIENCE = 5.0
"""Seconds; a process that hangs in the kernel may keep a reader of its maps waiting."""
_MOST = 64 << 20
_LINE = re.compile(rb"\S+ r-xp \S+ \S+ \d+ +(/[^\n]*/" + re.escape(LIBRARY.encode()) + rb")( \(deleted\))?\n")


@dataclass(frozen=True, slots=True, order=True)
class CarrierStatus:
    """A process that maps the library; `replaced`: the file is another one by now, or gone."""

    pid: int
    uid: int
    path: str
    replaced: bool


@dataclass(slots=True)
class Carriers:
    """Those found. `closed`: processes whose maps may not be read, `late`: some were not reached."""

    found: list[CarrierStatus] = field(default_factory=list)
    closed: int = 0
    late: bool = False


def carriers(proc: Path = Path("/proc"), patience: float = PATIENCE) -> Carriers:
    """Every process that maps the tap and that we may look into."""
    seen = Carriers()
    reader = threading.Thread(target=_read_all, args=(proc, seen), daemon=True)
    reader.start()
    reader.join(patience)
    return Carriers(sorted(seen.found), seen.closed, reader.is_alive())


def _read_all(proc: Path, seen: Carriers) -> None:
    for folder in sorted(proc.iterdir()):
        if folder.name.isdecimal():
            _read(folder, seen)


def _read(folder: Path, seen: Carriers) -> None:
    try:
        uid = folder.stat().st_uid
        with (folder / "maps").open("rb") as file:
            found = _LINE.search(file.read(_MOST))
    except PermissionError:
        seen.closed += 1
        return
    except OSError:
        return  # it ended meanwhile
    if found:
        path = found[1].decode("utf-8", "replace")
        seen.found.append(CarrierStatus(int(folder.name), uid, path, replaced=found[2] is not None))
