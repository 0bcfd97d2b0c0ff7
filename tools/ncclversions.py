"""proof/hardware/nccl.md: what works with which NCCL, each cell from committed results. `make generated`.

A version has a file of results in proof/hardware/nccl, made from the part `nccl` of the kit. Its log and its
answer of RAS are in tests/recorded/nccl, where a test reads them.
"""

import json
import re
from pathlib import Path
from typing import Any

from tools.prose import ROOT, formatted

FOLDER = ROOT / "proof" / "hardware" / "nccl"
PAGE = FOLDER.parent / "nccl.md"
RECORDED = ROOT / "tests" / "recorded" / "nccl"
SOURCE = ROOT / "agent" / "tap" / "sampling.c"
NAMED = ("2.27.5", "2.27.7", "2.28.9", "2.29.7", "2.30.7", "2.31.2", "2.32.3")
"""The versions of the table: those that torch and the package index bring."""
NOT = "not measured"
LARGE = 256 << 20
HEAD = """\
# NCCL by version

Made by `make generated` from the results in [nccl](nccl), which
`python -m proof.hardware nccl` takes on GPUs, and from the logs and answers in
[tests/recorded/nccl](../../tests/recorded/nccl).

- **Probe**: nine primitives at 256 MiB beside nccl-tests with the same library, farthest off.
- **Tap**: all-reduces of 4, 32 and 256 MiB after 10,000 small ones, each beside CUDA events; between
  them nothing, broadcasts, gathers of uneven parts, sends and receives, a second communicator, or
  replays of a CUDA graph. The tap times calls only with versions of its list. With others it counts
  them, writes so into its ring, and `wirewatch explain` says so.
- **As installed**: a job of all these calls in turn under the tap without any setting.
- **RAS, log**: a job's real answer and log are read by `wirewatch` as they should be.

"""


def files() -> dict[Path, str]:
    """Return the page."""
    return {PAGE: page(results())}


def results() -> dict[str, dict[str, Any]]:
    """Return the results by version."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")}
    return {name: found[name] for name in sorted(found, key=number)}


def timed() -> tuple[str, ...]:
    """Return the versions on the tap's list."""
    listed = re.search(r"versions\[\] = \{([\d, ]*)\};", SOURCE.read_text("utf-8"))
    assert listed
    return tuple(f"{one // 10000}.{one // 100 % 100}.{one % 100}" for one in map(int, listed[1].split(",")))


def number(version: str) -> tuple[int, ...]:
    """Return the parts of a version in their order."""
    return tuple(map(int, version.split(".")))


def page(by_version: dict[str, dict[str, Any]]) -> str:
    """Return the page of these results."""
    rows = ["| NCCL | probe | tap | as installed | RAS | log |", f"|{' -- |' * 6}"]
    for version in sorted({*NAMED, *by_version}, key=number):
        one = by_version.get(version, {})
        cells = (version, probe(one), tap(version, one), installed(one), *recorded(version))
        rows.append(f"| {' | '.join(cells)} |")
    details = [f"- {version}: {line}" for version, one in by_version.items() for line in _details(one)]
    return formatted(HEAD + "\n".join([*rows, "", "## In detail", "", *details]) + "\n")


def probe(one: dict[str, Any]) -> str:
    """Return how far the probe is from nccl-tests."""
    rows = [row for row in one.get("bandwidth", ()) if row["bytes"] == LARGE]
    if not rows:
        return f"[measured]({one['probe']})" if "probe" in one else NOT
    off = max(abs(row["probe"] / row["nccl_tests"] - 1) for row in rows)
    wrong = sum(row["wrong"] for row in rows)
    return f"{len(rows)} primitives, at most {100 * off:.1f} % off, {wrong} values wrong ({one['cards']})"


def tap(version: str, one: dict[str, Any]) -> str:
    """Return whether the tap times this version and what its trial showed."""
    trials, does = one.get("tap", ()), "times" if version in timed() else "counts"
    failures = [failed["how"] for failed in one.get("failures", ()) if "SIGSEGV" in failed["how"]]
    if not trials:
        return f"counts; {'; '.join(failures) or NOT}"
    right, wrong = sum(row["right"] for row in trials), sum(row["wrong"] for row in trials)
    hung = [row["calls_between"] for row in trials if not row["ends"]]
    told = [f"{right} of {right + wrong} times right", *(f"a job with {one} did not end" for one in hung)]
    return f"{does}; {'; '.join([*told, *failures])}"


def installed(one: dict[str, Any]) -> str:
    """Return how a job with the tap as users have it ended, and how many of its calls were timed."""
    if "installed" not in one:
        return NOT
    found = one["installed"]
    ended = "ended" if found["ends"] else "**did not end**"
    return f"{ended}; {found['timed']} of {found['calls']} calls timed, {found['wrong']} wrong"


def recorded(version: str) -> tuple[str, str]:
    """Return whether there is a recorded answer of RAS, and a recorded log."""
    places = [RECORDED / f"{version}{suffix}" for suffix in (".ras.json", ".log")]
    ras, log = ("read" if place.exists() else NOT for place in places)
    return ras, log


def _details(one: dict[str, Any]) -> list[str]:
    where = f"{one['cards']}, driver {one['driver']}, torch {one['torch']}, {one['date']}"
    lines = [where + (f"; {one['code']}" if one["code"] else "")]
    for row in one["tap"]:
        after = f", in the same job after {', '.join(row['after'])}" if row["after"] else ""
        ends = "" if row["ends"] else "; **the job did not end**"
        kind = f"tap, {row['how']}, {row['calls_between']} between{after}"
        lines.append(f"{kind}: {row['timed']} of {row['calls']} timed, {row['wrong']} wrong{ends}")
    for row in one["cost"]:
        middle = [sum(row[side]) / len(row[side]) for side in ("without", "with")]
        lines.append(
            f"a step of {row['job']}, {row['tap']}: {1e3 * middle[0]:.3f} ms without the tap, "
            f"{1e3 * middle[1]:.3f} ms with it ({len(row['with'])} of each)"
        )
    return [*lines, *(f"{failed['what']}: {failed['how']}" for failed in one["failures"])]
