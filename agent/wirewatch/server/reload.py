"""The settings that hold now: they follow their files without a restart, and nothing runs meanwhile."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from wirewatch.core.types import Kind, Metric, Sample
from wirewatch.server.webconfig import Settings, WebConfigError, named_files, parse, readable, settings

log = logging.getLogger(__name__)
INTERVAL = 1.0
"""Seconds within which the files are not looked at twice: a look is some microseconds a file."""
FileStamp = tuple[int, ...]
REASONS: Mapping[str, str] = {
    "credentials_missing": "no user, no token",
    "credentials_wrong": "unknown user, wrong password or token",
    "throttled": "too many wrong passwords from that address, or too many to look at at once",
    "certificate_missing": "no client certificate where one is required",
    "certificate_name": "a client certificate without any of `client_allowed_sans`",
    "tls": "the TLS handshake failed: version, cipher, certificate, or no TLS at all",
    "host": "a Host header that is no name of this listener",
    "malformed": "no HTTP, or headers that are too long",
    "slow": "no whole request and answer in time",
    "connections": "too many connections, in all or from one address",
}
LOG_INTERVAL = 60.0
"""Seconds between two log lines for one reason: whoever fails a thousand times must not fill the disk."""
REFUSED = Metric(
    "web_refused_total",
    Kind.COUNTER,
    ("reason",),
    "Connections and requests refused at the port and at the local socket.",
)
RELOADED = Metric(
    "web_config_last_reload_success",
    Kind.GAUGE,
    (),
    "1 when the web configuration and the files that it names could be used when they were last read; at 0 "
    "what held before still holds. No series without a web configuration.",
)
RELOADED_AT = Metric(
    "web_config_last_reload_success_timestamp_seconds",
    Kind.GAUGE,
    (),
    "When they were last read and could be used.",
    undrawn="files that nobody changes are read once",
)
METRICS = (REFUSED, RELOADED, RELOADED_AT)


@dataclass(frozen=True, slots=True)
class WebReport:
    """What there is to tell; `reloaded` is None without a web configuration."""

    refused: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    reloaded: bool | None = None
    reloaded_at: float = 0.0


class WebCounts:
    """Counts and tells; of the event loop alone. `told` is replaced by each change."""

    def __init__(
        self, now: Callable[[], float] = time.time, mono: Callable[[], float] = time.monotonic
    ) -> None:
        self.told = WebReport()
        self._now = now
        self._mono = mono
        self._logged: dict[str, float] = {}

    def refuse(self, reason: str, address: str, detail: str = "") -> None:
        """One more was refused; `reason` is one of REASONS, `detail` holds nothing secret."""
        told = self.told
        self.told = replace(told, refused={**told.refused, reason: told.refused[reason] + 1})
        mono = self._mono()
        if mono - self._logged.get(reason, -LOG_INTERVAL) >= LOG_INTERVAL:
            self._logged[reason] = mono
            log.warning("refused %s: %s%s", address, REASONS[reason], f" ({detail})" if detail else "")

    def reloaded(self, *, good: bool) -> None:
        """The web configuration was read."""
        at = self._now() if good else self.told.reloaded_at
        self.told = replace(self.told, reloaded=good, reloaded_at=at)


class CurrentSettings:
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

    def __init__(self, path: Path, counts: WebCounts, mono: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._counts = counts
        self._mono = mono
        self._stamps: dict[Path, FileStamp] = {}
        self._held = self._read()
        self._looked = mono()
        counts.reloaded(good=True)

    def look(self) -> Settings:
        """What holds now."""
        now = self._mono()
        if now - self._looked >= INTERVAL:
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


def samples(told: WebReport) -> Iterator[Sample]:
    for reason, count in told.refused.items():
        yield REFUSED.sample(count, reason)
    if told.reloaded is not None:
        yield RELOADED.sample(told.reloaded)
        yield RELOADED_AT.sample(told.reloaded_at)


def _stamp(path: Path) -> FileStamp:
    try:
        told = os.stat(path)  # noqa: PTH116 - of one look a second; a Path costs as much again
    except OSError:
        return ()
    return (told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns)
