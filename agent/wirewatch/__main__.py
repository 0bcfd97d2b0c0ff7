"""The composition root: `wirewatch` and `python -m wirewatch`."""

import sys

if __name__ == "__main__" and __file__ != f"{sys.path[0]}/wirewatch/__main__.py" and not sys.flags.safe_path:
    # `python -m` looks for modules in the current folder first, where anybody's may lie.
    del sys.path[0]

import gc
import signal
import time

BEGAN = time.monotonic()
"""Monotonic seconds before anything heavy is imported: the deadline of a command counts from here."""
DAEMONS = frozenset({("serve",), ("demo",), ("prober",), ("fleet", "controller")})


def main() -> None:
    """Run the command line, and end the process.

    Signals come first: without that, process 1 of a container ignores SIGTERM during the imports. They end a
    daemon with 0, and anything else with 70, since 0 would read as the verdict OK.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until then Ctrl-C ends this process without a traceback of its imports.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from wirewatch.core.exits import Exit
    from wirewatch.signals import SIGNALS

    words = tuple(text for text in sys.argv[1:] if not text.startswith("-"))
    daemon = words[:1] in DAEMONS or words[:2] in DAEMONS
    try:
        SIGNALS.install(0 if daemon else Exit.INTERNAL, daemon=daemon)
        # Imported objects stay, and collecting garbage meanwhile costs a tenth of the time.
        gc.disable()
        from wirewatch.cli import run

        code = run(sys.argv[1:], BEGAN)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else Exit.INTERNAL
    except Exception:  # noqa: BLE001 - an import fails, and status 1 would read as the verdict DEGRADED
        if not SIGNALS.raised:
            sys.excepthook(*sys.exc_info())
        code = Exit.INTERNAL
    SIGNALS.leave(code)


if __name__ == "__main__":
    main()
