"""baseline.json: the topology that was accepted, kept over restarts; written whole, or not at all."""

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from wirewatch.core import pci
from wirewatch.daemon import statefile
from wirewatch.verdict.drift.baseline import Baseline
from wirewatch.verdict.drift.graph import Graph, identity

log = logging.getLogger(__name__)

VERSION = 1
LIMIT = 16 << 20
"""Bytes; a file that is larger is not ours."""
_PATHS = frozenset({"", *(path.name for path in pci.Path)})


@dataclass(frozen=True, slots=True)
class Head:
    """What every version of the file begins with."""

    version: Annotated[int, Field(ge=0, lt=1 << 31)]


@dataclass(frozen=True, slots=True)
class File:
    """The file's content; `at`: when it was written (Unix seconds), `node`: the identity, for people."""

    version: int
    at: float
    node: str | None
    baseline: Baseline


@dataclass(frozen=True, slots=True)
class Loaded:
    """The baseline to begin with, and what was wrong with the file in one line; empty for nothing."""

    baseline: Baseline | None
    trouble: str = ""


_HEAD, _FILE = TypeAdapter(Head), TypeAdapter(File)


def read(path: Path) -> Loaded:
    """What the file holds; one that cannot be understood is left where it is."""
    text = statefile.content(path, LIMIT)
    if text is None:
        return Loaded(None)
    kept = _understood(text) if isinstance(text, bytes) else text
    return Loaded(None, f"{path}: {kept}") if isinstance(kept, str) else Loaded(kept.baseline)


def load(path: Path, at: float) -> Loaded:
    """What the file holds, for the agent that owns it: what cannot be understood is put aside and named."""
    loaded = read(path)
    if not loaded.trouble:
        return loaded
    trouble = f"{loaded.trouble}; {statefile.put_aside(path, at)}"
    log.error("%s", trouble)
    return Loaded(None, trouble)


def save(path: Path, baseline: Baseline, at: float) -> str:
    """Write the file; returns what went wrong in words, empty for nothing.

    What `load` would not take is not written, so that what was accepted before stays.
    """
    wrong = _unsound(baseline.graph)
    if wrong:
        return f"{path}: not written: {wrong}"
    name = identity(baseline.graph)
    kept = File(VERSION, at, name if isinstance(name, str) else None, baseline)
    text = statefile.encoded(_FILE.dump_python(kept, mode="json"))
    again = _understood(text) if len(text) <= LIMIT else f"larger than {LIMIT >> 20} MiB"
    return f"{path}: not written: {again}" if isinstance(again, str) else statefile.write(path, text)


def _understood(text: bytes) -> File | str:
    """The file's content, or in words why it is none of ours."""
    try:
        version = _HEAD.validate_json(text, strict=True).version
        if version != VERSION:
            return f"version {version}, this agent knows {VERSION}"
        kept = _FILE.validate_json(text, strict=True)
    except ValidationError as error:
        return statefile.reason(error)
    said = (kept.baseline.said, *(one.said for one in kept.baseline.accepted))
    if not all(map(math.isfinite, (kept.at, *(word.at for word in said)))):
        return "a number without end"
    return _unsound(kept.baseline.graph) or kept


def _unsound(graph: Graph) -> str:
    """In words what no graph of a node has, and who compares graphs does not expect."""
    grouped = {key for island in graph.islands for key in island.gpus}
    if not grouped.issuperset(gpu.key for gpu in graph.gpus):
        return "a GPU that is in no island"
    if not _PATHS.issuperset(reach.path for nic in graph.nics for reach in nic.paths):
        return "a PCIe path that is none"
    return ""
