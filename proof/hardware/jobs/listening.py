"""What the jobs have in common: their input says when to go and, by its end, when to stop."""

import sys
import threading


def say(word: str, rest: object = "") -> None:
    print(word, rest, flush=True)


def wait_for_line() -> bool:
    """Wait for the next line; False when the input has ended."""
    return bool(sys.stdin.readline())


def ended() -> threading.Event:
    """Set once the input ends."""
    event = threading.Event()

    def watch() -> None:
        while sys.stdin.readline():
            pass
        event.set()

    threading.Thread(target=watch, daemon=True).start()
    return event
