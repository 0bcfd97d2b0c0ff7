"""Rules that no collector has, declared for the length of a test."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tools import alerting
from wirewatch.catalogue import rules
from wirewatch.core.collector import Rule

_CACHED = (alerting.alerts, alerting.alerts_text, alerting.made_alerts)


@contextmanager
def also_declared(*more: Rule) -> Iterator[None]:
    """Alerts are generated as if a collector declared these rules too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alerting, "declared", lambda: (*rules(), *more))
        _clear()
        yield
    _clear()


def _clear() -> None:
    for function in _CACHED:
        function.cache_clear()
