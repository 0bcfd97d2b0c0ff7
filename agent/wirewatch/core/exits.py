"""The exit codes of all commands, in one table. Imported in milliseconds."""

from enum import IntEnum

from wirewatch.core.types import Health


class Exit(IntEnum):
    """Exit codes of a command: 0 to 3 are verdicts; from a command without a verdict, 0 means done.

    The other codes are as in sysexits.h. 64: wrong usage, or an order that the daemon refuses. 69: no answer
    of the daemon, the driver, Prometheus or a scheduler. 70: an internal error, or an early end. 78: a wrong
    configuration.
    """

    OK = 0
    DEGRADED = 1
    FAILED = 2
    UNKNOWN = 3
    USAGE = 64
    NO_ANSWER = 69
    INTERNAL = 70
    CONFIG = 78


def exit_of(health: Health) -> Exit:
    """The exit code of a verdict."""
    return Exit[health.name]
