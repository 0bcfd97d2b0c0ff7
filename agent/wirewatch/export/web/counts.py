"""What the port has refused and how its configuration fares, as metrics and, sparingly, as log lines."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from wirewatch.core.types import Kind, Metric, Sample

log = logging.getLogger(__name__)

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
QUIET = 60.0
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
class Told:
    """What there is to tell; `reloaded` is None without a web configuration."""

    refused: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    reloaded: bool | None = None
    reloaded_at: float = 0.0


class Counts:
    """Counts and tells; of the event loop alone. `told` is replaced by each change."""

    def __init__(
        self, now: Callable[[], float] = time.time, mono: Callable[[], float] = time.monotonic
    ) -> None:
        self.told = Told()
        self._now = now
        self._mono = mono
        self._logged: dict[str, float] = {}

    def refuse(self, reason: str, address: str, detail: str = "") -> None:
        """One more was refused; `reason` is one of REASONS, `detail` holds nothing secret."""
        told = self.told
        self.told = replace(told, refused={**told.refused, reason: told.refused[reason] + 1})
        mono = self._mono()
        if mono - self._logged.get(reason, -QUIET) >= QUIET:
            self._logged[reason] = mono
            log.warning("refused %s: %s%s", address, REASONS[reason], f" ({detail})" if detail else "")

    def reloaded(self, *, good: bool) -> None:
        """The web configuration was read."""
        at = self._now() if good else self.told.reloaded_at
        self.told = replace(self.told, reloaded=good, reloaded_at=at)


def samples(told: Told) -> Iterator[Sample]:
    for reason, count in told.refused.items():
        yield REFUSED.sample(count, reason)
    if told.reloaded is not None:
        yield RELOADED.sample(told.reloaded)
        yield RELOADED_AT.sample(told.reloaded_at)
