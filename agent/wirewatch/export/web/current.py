"""The settings that hold now: they follow their files without a restart, and nothing runs meanwhile."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from wirewatch.export.web.counts import Counts
from wirewatch.export.web.file import WebConfigError, parse
from wirewatch.export.web.reading import named_files, settings
from wirewatch.export.web.settings import Settings
from wirewatch.export.web.tls import readable

log = logging.getLogger(__name__)

OFTEN = 1.0
"""Seconds within which the files are not looked at twice: a look is some microseconds a file."""
Stamp = tuple[int, ...]


class Current:
    """Looks at its files when somebody connects or asks, so that an idle daemon has no work by it.

    A file that changed is known by its place, size and times behind all symbolic links, so that the swapped
    links of a mounted Secret are a change. What cannot be used changes nothing and is told.

    Args:
        path: the web configuration.
        counts: told how each reading went.
        mono: monotonic seconds.

    Raises:
        WebConfigError: the files cannot be used as they are at the start.
    """

    def __init__(self, path: Path, counts: Counts, mono: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._counts = counts
        self._mono = mono
        self._stamps: dict[Path, Stamp] = {}
        self._held = self._read()
        self._looked = mono()
        counts.reloaded(good=True)

    def look(self) -> Settings:
        """What holds now."""
        now = self._mono()
        if now - self._looked >= OFTEN:
            self._looked = now
            if any(_stamp(path) != stamp for path, stamp in self._stamps.items()):
                self._again()
        return self._held

    def _again(self) -> None:
        try:
            made = self._read()
        except WebConfigError as error:
            self._refuse(str(error))
            return
        if lost := self._held.loses(made):
            self._refuse(f"{self._path}: {lost} can be taken away by a restart alone")
            return
        self._held = made
        self._counts.reloaded(good=True)
        log.info("web configuration: %s and the files that it names were read again", self._path)

    def _refuse(self, why: str) -> None:
        self._counts.reloaded(good=False)
        log.error("web configuration: %s; what held before still holds", why)

    def _read(self) -> Settings:
        """Each file's stamp is taken before it is read: a change in between is seen at the next look."""
        self._stamps = {self._path: _stamp(self._path)}
        try:
            text = readable(self._path).decode()
        except UnicodeDecodeError as error:
            raise WebConfigError(f"{self._path}: no YAML") from error
        file, folder = parse(text, self._path), self._path.parent
        self._stamps |= {path: _stamp(path) for path in named_files(file, folder)}
        return settings(file, folder)


def _stamp(path: Path) -> Stamp:
    try:
        told = os.stat(path)  # noqa: PTH116 - of one look a second; a Path costs as much again
    except OSError:
        return ()
    return (told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns)
