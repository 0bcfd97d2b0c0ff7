"""A past for ranges that reach back further than a measurement lasts: blocks that promtool makes.

What a rule reads over a range is taken as it is now and written back over that range, at the pace at which
it is recorded or scraped; so an evaluation reads as many samples as in a Prometheus that has run for weeks.
"""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proof.fleet.scrape.services import SCRAPE, Watched
from tools.alerting import RECORDING, alerts_text
from tools.promql import selectors
from tools.yamlfile import load_yaml

SHORT = 600.0
"""Seconds of a range that the measurement itself fills."""
RELOADS = 75.0
"""Seconds within which Prometheus finds new blocks."""
_RANGE = re.compile(r"([a-z_:]+)(?:\{[^}]*\})?\[(\w+)\](?: offset (\w+))?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration: str) -> int:
    """Of a duration of one unit, as the rules have them."""
    return int(duration[:-1]) * _UNITS[duration[-1]]


def paces() -> dict[str, int]:
    """Every how many seconds each recorded series has a sample, as shipped."""
    groups = load_yaml(RECORDING.read_text("utf-8"))["groups"]
    return {rule["record"]: seconds(group["interval"]) for group in groups for rule in group["rules"]}


def reaches() -> dict[str, int]:
    """How many seconds back the rules read each series."""
    texts = (load_yaml(text)["groups"] for text in (RECORDING.read_text("utf-8"), alerts_text()))
    found: dict[str, int] = {}
    for rule in (rule for groups in texts for group in groups for rule in group["rules"]):
        assert selectors(rule["expr"])
        for name, over, offset in _RANGE.findall(rule["expr"]):
            back = seconds(over) + (seconds(offset) if offset else 0)
            found[name] = max(found.get(name, 0), back)
    return {name: back for name, back in found.items() if back > SHORT}


def fill(watched: Watched, folder: Path, began: float) -> dict[str, int]:
    """Write the past of all series that are there; the number of samples of each.

    What is made of others' past (the week of the hours) comes once they have theirs, so there are rounds.
    """
    pace, written = paces(), dict[str, int]()
    for _ in range(3):
        new = {name: back for name, back in reaches().items() if name not in written}
        made = {}
        for name, back in new.items():
            series = watched.prometheus.instant(f"last_over_time({name}[10m])")
            if series:
                path = folder / "past.om"
                count = _write(path, name, series, _moments(began, back, pace.get(name, SCRAPE)))
                _blocks(path, watched.data)
                made[name] = count
        if not made:
            break
        written |= made
        time.sleep(RELOADS)
    return written


def _moments(began: float, back: int, step: int) -> list[int]:
    end = int(began) - 1
    return list(range(end - back, end, step))


def _write(path: Path, name: str, series: list[dict[str, Any]], moments: list[int]) -> int:
    """Each series with its value of now at all moments; a timestamp is that of the moment."""
    with path.open("w", encoding="utf-8") as out:
        out.write(f"# TYPE {name} gauge\n")
        for one in series:
            labels = _labels(one["metric"])
            value = one["value"][1]
            out.writelines(_lines(f"{name}{{{labels}}}", value, moments, dated="heard" in name))
        out.write("# EOF\n")
    return len(series) * len(moments)


def _lines(series: str, value: str, moments: list[int], *, dated: bool) -> Iterator[str]:
    for at in moments:
        yield f"{series} {at if dated else value} {at}\n"


def _labels(metric: Mapping[str, str]) -> str:
    pairs = ((key, text.replace("\\", "\\\\").replace('"', '\\"')) for key, text in metric.items())
    return ",".join(f'{key}="{text}"' for key, text in pairs if key != "__name__")


def _blocks(path: Path, data: Path) -> None:
    # Blocks of weeks: promtool reads the file once for each block.
    words = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=960h", "openmetrics", path, data]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
