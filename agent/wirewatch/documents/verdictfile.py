"""The verdict as a small file of lines, which a gate reads without Python: docs/verdict-file.md.

A shell must be able to check all of it by itself. So it is plain text of a fixed order with whole seconds.
Its length and time stand at the end again, by which half a file, or halves of two, are refused.
"""

import re
from dataclasses import dataclass

from wirewatch.documents.health import Health, NodeGpu

NAME = "verdict"
"""Of the file, in the folder of the daemon's socket."""
OF_GPUS = "-gpus"
"""The end of the name of the other file, which has the parts of the verdict too."""
VERSION = 1
VALID = 20
"""Seconds for which a written verdict may be read; four of them may be lost meanwhile."""
EVERY = 5.0
"""Seconds after which the same verdict is written again."""
_YES_OR_NO = {True: "yes", False: "no"}


@dataclass(frozen=True, slots=True)
class FilePart:
    """The node without its GPUs, or a GPU: all its names, its health and its line."""

    health: Health
    line: str
    gpu: NodeGpu | None = None

    @property
    def names(self) -> str:
        """The GPU in a word: NVML's number, that of the device file, UUID, PCI address and MIG mode."""
        if self.gpu is None:
            return ""
        split = {None: "unknown", True: "split", False: "whole"}[self.gpu.split]
        texts = (self.gpu.gpu, self.gpu.minor, self.gpu.uuid.lower(), self.gpu.pci.lower(), split)
        return "/".join(_word(text) for text in texts) + "/ "


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """A verdict as the file has it.

    `health`, `may_start`, `fail_on` and `line` are what `wirewatch check --cached` says; `always`: healths
    with which no job starts whatever the caller's `--fail-on`. `probe`: seconds since the last complete probe
    ended, "never", or "none" where nothing is probed. `source`: live, replay or synthetic. `parts`: the node
    without its GPUs, and each of these; none where they are not known.
    """

    source: str
    health: Health
    may_start: bool
    fail_on: tuple[Health, ...]
    always: tuple[Health, ...]
    probe: int | str
    released: bool
    line: str
    parts: tuple[FilePart, ...] = ()


@dataclass(frozen=True, slots=True)
class Stamp:
    """When the verdict was taken: the boot's id, and seconds since it as in /proc/uptime."""

    boot: str
    uptime: float


def encoded(verdict: FileVerdict, stamp: Stamp, *, gpus: bool = False) -> bytes:
    """The whole file; that with the parts of the verdict for `gpus`."""
    written = f"{stamp.uptime:.2f}"
    fields = {
        f"wirewatch-verdict{OF_GPUS if gpus else ''}": VERSION,
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
    lines = [f"{name} {value}\n" for name, value in fields.items()]
    if gpus:
        lines.append(f"parts {len(verdict.parts)}\n")
        lines += [f"part {one.names}{one.health} {plain_ascii(one.line)}\n" for one in verdict.parts]
    body = "".join(lines).encode("ascii")
    return body + f"end {written} {len(body)}\n".encode("ascii")


def plain_ascii(text: str) -> str:
    """Printable ASCII: nothing in it can end the line, or be two lengths to two shells."""
    shown = text.replace("\N{HORIZONTAL ELLIPSIS}", "...").encode("ascii", "replace").decode("ascii")
    return "".join(one if one.isprintable() else " " for one in shown)


def _word(text: str) -> str:
    """A name as one word of the file; a dash for a name that is not known, or cannot be one."""
    return text if re.fullmatch("[a-z0-9:.-]+", text) else "-"
