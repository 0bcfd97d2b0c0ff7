"""Recordings: the answers of the ports on a real machine, moment by moment.

A recording is a folder with `manifest.json` and `moments.jsonl.gz`, which has a line for each answer. A
question without a line at a later moment had the same answer there (docs/recordings.md).
"""

import gzip
import json
import os
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from wirewatch.core.names import did_you_mean
from wirewatch.core.ports import Answer
from wirewatch.core.statistics import delta, grouped
from wirewatch.core.types import Absent, Json, NotText, Unusable, Why, utf8, whole
from wirewatch.hw.files import absent_errno
from wirewatch.hw.nvml.protocol import absent_code

SCHEMA = "wirewatch.recording/1"
MANIFEST, MOMENTS = "manifest.json", "moments.jsonl.gz"
BUNDLED = Path(__file__).parent.parent / "recordings"
LONGEST, WHOLE = 16 << 20, 256 << 20
"""Most bytes of one line and of all lines, unpacked, so that no file can take all memory. Our longest line
has 30 kB, our largest recording 2 MB."""
_AT_ONCE, _LONG = 512, 32768
"""Lines that are parsed at once, and bytes of a line that ends a batch early."""
_ERRORS = (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, IndexError, RecursionError)
_NUMBERED = {"nvml": "code", "sysfs": "errno", "kmsg": "errno", "command": "errno"}
"""The key of an absence's number in a line, by port."""
Key = tuple[str, str]
"""Port, and the question's text, for NVML with the GPU in front: `gpu3/Temperature(0)`."""


class RecordingError(Unusable):
    """A recording that cannot be played; the text is one line for the user."""


@dataclass(frozen=True)
class Recording:
    """`times`: seconds of each moment since the first; `answers`: by question, in order of moments."""

    name: str
    manifest: Mapping[str, Any]
    times: tuple[float, ...]
    answers: Mapping[Key, tuple[tuple[int, Answer], ...]]

    @cached_property
    def ports(self) -> frozenset[str]:
        """Ports that have answers; older versions of wirewatch had fewer ports."""
        return frozenset(port for port, _ in self.answers)

    @property
    def at_unix(self) -> float:
        """Return the Unix seconds of its first moment; 0 when the manifest does not say."""
        moments = self.manifest.get("moments") or [{}]
        return float(moments[0].get("at", 0.0))

    @property
    def synthetic(self) -> bool:
        """Return whether part of it was made up, as its manifest says."""
        return self.manifest.get("source") == "synthetic"

    def at(self, key: Key, moment: int) -> Answer | None:
        """The latest answer not after a moment; None when the question was never asked by then."""
        answers = self.answers.get(key, ())
        # A moment alone is less than the same moment with an answer, so that no answer is ever compared.
        last = bool(answers) and answers[-1][0] <= moment
        place = len(answers) if last else bisect_left(answers, (moment + 1,))
        return answers[place - 1][1] if place else None

    def growth(self, key: Key) -> int:
        """Return a counter's growth from the first moment to the last, resets left out; 0 for no counter."""
        values = (number(answer.value) for _, answer in self.answers.get(key, ()))
        numbers = [value for value in values if value is not None]
        return sum(delta(before, now) for before, now in pairwise(numbers))


def number(value: Json | Absent) -> int | None:
    """Return a whole number, also if a file holds it as text."""
    if isinstance(value, str):
        return whole(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def find(name: str) -> Path:
    """Return the folder of a recording, by path or bundled name; raises RecordingError where none is."""
    for folder in (Path(name), BUNDLED / name):
        if (folder / MANIFEST).is_file():
            return folder
    if name and Path(name).is_dir():
        raise RecordingError(f"{name} is a folder without {MANIFEST}, so no recording of `wirewatch record`")
    meant = did_you_mean(name, bundled_names(), "`wirewatch demo recordings` lists the bundled ones")
    raise RecordingError(f"no recording {name!r}, neither a folder nor a bundled one: {meant}")


def bundled_names() -> list[str]:
    """Names of the recordings that come with wirewatch."""
    return sorted(p.parent.name for p in BUNDLED.glob(f"*/{MANIFEST}"))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest in a recording's folder; RecordingError for another schema or no text.

    Raises OSError, ValueError, KeyError, TypeError where it is damaged.
    """
    try:
        manifest: dict[str, Any] = json.loads(utf8((folder / MANIFEST).read_bytes()))
    except NotText as error:
        raise RecordingError(f"{folder / MANIFEST}: {error}") from error
    if manifest["schema"] != SCHEMA:
        raise RecordingError(f"{folder}: schema {manifest['schema']!r}, this version plays {SCHEMA!r}")
    return manifest


def load_recording(name: str) -> Recording:
    """Read a recording whole; raises RecordingError where it is missing, of another schema, or damaged."""
    folder = find(name)
    try:
        manifest = read_manifest(folder)
        times = tuple(float(m["seconds"]) for m in manifest["moments"])
        with gzip.open(folder / MOMENTS, "rb") as packed:
            answers = _answers(_lines(packed))
    except NotText as error:
        raise RecordingError(f"{folder / MOMENTS}: it is not text in UTF-8") from error
    except _ERRORS as error:
        raise RecordingError(f"{folder}: damaged recording ({error.__class__.__name__}: {error})") from error
    if not times or list(times) != sorted(times):
        raise RecordingError(f"{folder}: damaged recording (moments missing or not in order)")
    return Recording(folder.name, manifest, times, answers)


def pack(moment: int, port: str, question: str, answer: Answer) -> dict[str, Any]:
    """One line of a recording: `answer`; or `code` of NVML, `errno` of a file; or `why` and `detail`."""
    row: dict[str, Any] = {"moment": moment, "port": port, "question": question}
    value = answer.value
    if not isinstance(value, Absent):
        row["answer"] = value
    elif value.code is not None and port in _NUMBERED:
        row[_NUMBERED[port]] = value.code
    else:
        row |= {"why": value.why.value, "detail": value.detail}
    return row | {"us": round(answer.us, 1)}


def unpack(row: Mapping[str, Any]) -> Answer:
    """The answer in one line of a recording."""
    if "answer" in row:
        return Answer(row["answer"], row["us"])
    if "code" in row:
        return Answer(absent_code(row["code"]), row["us"])
    if "errno" in row:
        return Answer(absent_errno(row["errno"], row["question"].partition(" ")[2]), row["us"])
    return Answer(Absent(Why(row["why"]), row["detail"]), row["us"])


def write(folder: Path, manifest: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> int:
    """Write a recording without time stamps: equal answers make equal files; returns the number of lines."""
    folder.mkdir(parents=True, exist_ok=True)
    with _replacing(folder / MOMENTS) as file:
        count = _pack_all(file, rows)
    _write_manifest(folder, manifest, count)
    return count


def append(folder: Path, manifest: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], before: int) -> int:
    """Add rows to a recording of `before` lines, all or none; return its new number of lines."""
    path = folder / MOMENTS
    size = path.stat().st_size
    with ExitStack() as undo:
        undo.callback(os.truncate, path, size)
        with path.open("ab") as file:
            count = before + _pack_all(file, rows)
        _write_manifest(folder, manifest, count)
        undo.pop_all()
    return count


def _pack_all(file: IO[bytes], rows: Iterable[Mapping[str, Any]]) -> int:
    count = 0
    with gzip.GzipFile("", "wb", 9, file, 0) as packed:
        for count, row in enumerate(rows, 1):  # noqa: B007
            packed.write(json.dumps(row, separators=(",", ":"), sort_keys=True).encode() + b"\n")
    return count


def _write_manifest(folder: Path, manifest: Mapping[str, Any], lines: int) -> None:
    text = json.dumps({**manifest, "schema": SCHEMA, "lines": lines}, indent=1, sort_keys=True)
    with _replacing(folder / MANIFEST) as file:
        file.write(f"{text}\n".encode())


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    new = path.with_name(f".{path.name}")
    try:
        with new.open("wb") as file:
            yield file
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _lines(packed: gzip.GzipFile) -> Iterator[bytes]:
    """Yield the lines; raises ValueError when any line, or all together, are too long."""
    whole = 0
    while line := packed.readline(LONGEST + 1):
        whole += len(line)
        if len(line) > LONGEST or whole > WHOLE:
            raise ValueError(f"a line of more than {LONGEST} bytes, or more than {WHOLE} in all")
        yield line


def _rows(lines: Iterable[bytes]) -> Iterator[Any]:
    """Yield the lines as JSON; many short lines at once take less than half the time."""
    held: list[bytes] = []
    for line in lines:
        held.append(line)
        if len(held) == _AT_ONCE or len(line) > _LONG:
            yield from json.loads(utf8(b"[%b]" % b",".join(held)))
            held.clear()
    yield from json.loads(utf8(b"[%b]" % b",".join(held)))


def _answers(lines: Iterable[bytes]) -> dict[Key, tuple[tuple[int, Answer], ...]]:
    rows = _rows(lines)
    found = grouped(((row["port"], row["question"]), (row["moment"], unpack(row))) for row in rows)
    return {key: tuple(sorted(answers, key=lambda item: item[0])) for key, answers in found.items()}
