"""The collectors, one file or folder each, found by looking: a new one is registered by being here."""

import pkgutil
from functools import cache
from importlib import import_module

from wirewatch.core.collector import AnyCollector, Collector


@cache
def discover() -> tuple[AnyCollector, ...]:
    """Every collector of this package, by name.

    Raises:
        TypeError: a module here does not offer a `COLLECTOR`.
    """
    found: list[AnyCollector] = []
    for module in pkgutil.iter_modules(__path__):
        collector = getattr(import_module(f"{__name__}.{module.name}"), "COLLECTOR", None)
        if not isinstance(collector, Collector):
            raise TypeError(f"{__name__}.{module.name} has no COLLECTOR")
        found.append(collector)
    return tuple(sorted(found, key=lambda c: c.name))
