"""The verdict as a small file of lines, which a gate reads without Python: docs/verdict-file.md.

A shell must be able to check all of it by itself. So it is plain text of a fixed order with whole seconds.
Its length and time stand at the end again, by which half a file, or halves of two, are refused.
"""

from dataclasses import dataclass

from wirewatch.documents.health import Health

NAME = "verdict"
"""Of the file, in the folder of the daemon's socket."""
VERSION = 1
VALID = 20
"""Seconds for which a written verdict may be read; four of them may be lost meanwhile."""
EVERY = 5.0
"""Seconds after which the same verdict is written again."""
_YES_OR_NO = {True: "yes", False: "no"}


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """A verdict as the file has it.

    `health`, `may_start`, `fail_on` and `line` are what `wirewatch check --cached` says; `always`: healths
    with which no job starts whatever the caller's `--fail-on`. `probe`: seconds since the last complete probe
    ended, "never", or "none" where nothing is probed. `source`: live, replay or synthetic.
    """

    source: str
    health: Health
    may_start: bool
    fail_on: tuple[Health, ...]
    always: tuple[Health, ...]
    probe: int | str
    released: bool
    line: str


@dataclass(frozen=True, slots=True)
class Stamp:
    """When the verdict was taken: the boot's id, and seconds since it as in /proc/uptime."""

    boot: str
    uptime: float


def encoded(verdict: FileVerdict, stamp: Stamp) -> bytes:
    """The whole file."""
    written = f"{stamp.uptime:.2f}"
    fields = {
        "wirewatch-verdict": VERSION,
        "boot": stamp.boot,
        "written": written,
        "valid": VALID,
        "source": verdict.source,
        "health": verdict.health,
        "job_ready": _YES_OR_NO[verdict.may_start],
        "fail_on": ",".join(verdict.fail_on),
        "always": ",".join(verdict.always),
        "probe": verdict.probe,
        "released": _YES_OR_NO[verdict.released],
        "line": plain_ascii(verdict.line),
    }
    body = "".join(f"{name} {value}\n" for name, value in fields.items()).encode("ascii")
    return body + f"end {written} {len(body)}\n".encode("ascii")


def plain_ascii(text: str) -> str:
    """Printable ASCII: nothing in it can end the line, or be two lengths to two shells."""
    shown = text.replace("\N{HORIZONTAL ELLIPSIS}", "...").encode("ascii", "replace").decode("ascii")
    return "".join(one if one.isprintable() else " " for one in shown)
