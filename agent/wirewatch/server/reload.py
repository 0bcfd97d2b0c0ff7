"""The web settings that are valid now, read again when their files change; and counters of refusals."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from wirewatch.core.types import NotText, Sample, Tier, family, utf8
from wirewatch.server.webconfig import Settings, WebConfigError, named_files, parse, readable, settings

log = logging.getLogger(__name__)
INTERVAL = 1.0
"""Seconds between two checks of the files; a check takes some microseconds a file."""
FileStamp = tuple[int, ...]
REASONS: Mapping[str, str] = {
    "credentials_missing": "no user, no token",
    "credentials_wrong": "unknown user, wrong password or token",
    "throttled": "too many wrong passwords from that address, or too many to check at once",
    "certificate_missing": "no client certificate where one is required",
    "certificate_name": "a client certificate without any of `client_allowed_sans`",
    "tls": "the TLS handshake failed: version, cipher, certificate, or no TLS at all",
    "host": "a Host header that is not a name of this listener",
    "malformed": "not HTTP, or headers that are too long",
    "slow": "request and answer were not complete in time",
    "connections": "too many connections, in all or from one address",
}
LOG_INTERVAL = 60.0
"""Seconds between two log lines for one reason: a client that fails all the time must not fill the disk."""
REFUSED = family(
    "web_refused_total", ("reason",), "Connections and requests refused at the port and at the local socket.",
)  # fmt: skip
RELOADED = family(
    "web_config_last_reload_success", (),
    "1 when the web configuration and the files that it names could be used when they were last read; at 0 "
    "the settings before still hold. No series without a web configuration.", tier=Tier.CORE,
)  # fmt: skip
RELOADED_AT = family(
    "web_config_last_reload_success_timestamp_seconds", (), "When they were last read and could be used.",
    undrawn="files that nobody changes are read once",
)  # fmt: skip
METRICS = (REFUSED, RELOADED, RELOADED_AT)


@dataclass(frozen=True, slots=True)
class WebReport:
    """Refusals by reason, and the last reload: `reloaded` is None without a web configuration."""

    refused: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    reloaded: bool | None = None
    reloaded_at: float = 0.0


class WebCounts:
    """Counts and logs refusals, on the event loop alone. `report` is replaced by each change."""

    def __init__(
        self, now: Callable[[], float] = time.time, mono: Callable[[], float] = time.monotonic
    ) -> None:
        self.report = WebReport()
        self._now = now
        self._mono = mono
        self._logged: dict[str, float] = {}

    def refuse(self, reason: str, address: str, detail: str = "") -> None:
        """Count one more refusal; `reason` is in REASONS, `detail` holds nothing secret."""
        refused = self.report.refused
        self.report = replace(self.report, refused={**refused, reason: refused[reason] + 1})
        mono = self._mono()
        if mono - self._logged.get(reason, -LOG_INTERVAL) >= LOG_INTERVAL:
            self._logged[reason] = mono
            log.warning("refused %s: %s%s", address, REASONS[reason], f" ({detail})" if detail else "")

    def reloaded(self, *, good: bool) -> None:
        """The web configuration was read; `good`: it could be used."""
        at = self._now() if good else self.report.reloaded_at
        self.report = replace(self.report, reloaded=good, reloaded_at=at)


class CurrentSettings:
    """Checks its files when a client connects or sends a request, so that an idle daemon has no work.

    It compares device, inode, size and times behind all symbolic links: the swapped links of a mounted Secret
    are a change. Files that cannot be used change nothing; the log and a metric show it. Raises
    WebConfigError: the files cannot be used at the start.
    """

    def __init__(self, path: Path, counts: WebCounts, mono: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._counts = counts
        self._mono = mono
        self._stamps: dict[Path, FileStamp] = {}
        self._settings = self._read()
        self._checked_at = mono()
        counts.reloaded(good=True)

    def settings(self) -> Settings:
        """The settings that are valid now."""
        now = self._mono()
        if now - self._checked_at >= INTERVAL:
            self._checked_at = now
            if any(_stamp(path) != stamp for path, stamp in self._stamps.items()):
                self._reload()
        return self._settings

    def _reload(self) -> None:
        try:
            made = self._read()
        except WebConfigError as error:
            self._refuse(str(error))
            return
        if lost := self._settings.loses(made):
            self._refuse(f"{self._path}: only a restart can take away {lost}")
            return
        self._settings = made
        self._counts.reloaded(good=True)
        log.info("web configuration: %s and the files that it names were read again", self._path)

    def _refuse(self, why: str) -> None:
        self._counts.reloaded(good=False)
        log.error("web configuration: %s; the settings stay as they were", why)

    def _read(self) -> Settings:
        """Each file's stamp is taken before it is read: a change in between is seen at the next check."""
        self._stamps = {self._path: _stamp(self._path)}
        try:
            text = utf8(readable(self._path))
        except NotText as error:
            raise WebConfigError(f"{self._path}: {error}") from error
        file, folder = parse(text, self._path), self._path.parent
        self._stamps |= {path: _stamp(path) for path in named_files(file, folder)}
        return settings(file, folder)


def samples(report: WebReport) -> Iterator[Sample]:
    """The series of the report."""
    for reason, count in report.refused.items():
        yield REFUSED.sample(count, reason)
    if report.reloaded is not None:
        yield RELOADED.sample(report.reloaded)
        yield RELOADED_AT.sample(report.reloaded_at)


def _stamp(path: Path) -> FileStamp:
    try:
        found = os.stat(path)  # noqa: PTH116 - once a second; a Path costs as much again
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
