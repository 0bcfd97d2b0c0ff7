"""The demo node's recording, with another probe in it."""

import copy
import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from wirewatch.hw.recording import BUNDLED

DEMO = BUNDLED / "demo-dgx-h200"
Change = Callable[[dict[str, Any]], object]
_FILE = "moments.jsonl.gz"


@cache
def _lines() -> tuple[list[str], dict[str, Any]]:
    """All lines but that of the probe, and that."""
    lines = gzip.decompress((DEMO / _FILE).read_bytes()).decode().splitlines()
    others = [line for line in lines if '"port":"probe"' not in line]
    (probe,) = [json.loads(line) for line in lines if '"port":"probe"' in line]
    return others, probe


def with_probe(folder: Path, *changes: Change, seconds: float = 0.05) -> str:
    """A recording in a new folder, whose probe takes so long and is changed so."""
    others, probe = _lines()
    row = copy.deepcopy(probe)
    row["answer"] |= {"seconds": seconds, "held_seconds": seconds / 2}
    for change in changes:
        change(row["answer"])
    folder.mkdir()
    (folder / "manifest.json").write_bytes((DEMO / "manifest.json").read_bytes())
    text = "\n".join([*others, json.dumps(row)]) + "\n"
    (folder / _FILE).write_bytes(gzip.compress(text.encode(), 1))
    return str(folder)


def slow(probed: dict[str, Any]) -> None:
    """All_reduce takes twice as long."""
    for timed in probed["document"]["collectives"]:
        if timed["op"] == "all_reduce":
            timed |= {name: 2 * timed[name] for name in ("seconds", "low", "median", "high")}


def uneven(probed: dict[str, Any]) -> None:
    """Link 5 of GPU 3 carries half of what the others do."""
    for way in ("transmit", "receive"):
        probed["links"][3][way][5] //= 2


def wrong(probed: dict[str, Any]) -> None:
    probed["document"]["collectives"][0]["wrong"] = 3


def failed(probed: dict[str, Any]) -> None:
    probed |= {"outcome": "failed", "why": "the driver said no", "document": None}


def malformed(probed: dict[str, Any]) -> None:
    probed["outcome"] = "splendid"
