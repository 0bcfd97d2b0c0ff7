"""proof/siege/soak.svg: what a process holds over a day."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

MIB = 1 << 20
PICTURE = Path(__file__).with_name("soak.svg")
PANELS = (
    ("pss", "memory (PSS), MiB", MIB), ("database", "database, MiB", MIB), ("descriptors", "descriptors", 1),
    ("threads", "threads", 1),
)  # fmt: skip


def draw(samples: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The same bytes each time, but for another matplotlib."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "wirewatch", "font.size": 10})
    figure, panels = pyplot.subplots(2, 2, figsize=(10, 5), sharex=True, layout="constrained")
    hours = [one["hours"] for one in samples]
    for panel, (name, label, unit) in zip(panels.flat, PANELS, strict=True):
        values = [one[name] / unit for one in samples]
        panel.plot(hours, values, linewidth=1.3)
        panel.set_ylim(0, 1.3 * max(values))
        panel.set_title(label)
        panel.set_xticks(range(0, round(max(hours)) + 1, 3))
        panel.grid(alpha=0.3)
    for panel in panels[1]:
        panel.set_xlabel("hours of service")
    figure.savefig(path, metadata={"Date": None}, dpi=110)
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text("utf-8").splitlines()))
