"""proof/simulation/simulation.svg: how soon a fault is found, by how bad it is."""

from importlib import import_module
from pathlib import Path
from typing import Any

from proof.simulation.results import ALONE, ENDS, FACTORS, LOST, Results
from proof.simulation.simulate import HORIZON, POLICY

STYLES = (("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"), ("v", (0, (5, 1, 1, 1, 1, 1))))
TICKS = (2, 4, 5, 6, 7, 8, 10, 15, 20, 30, 50)
NEVER = HORIZON + 1


def draw(results: Results, path: Path) -> None:
    """The same bytes each time, but for another matplotlib."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "wirewatch", "font.size": 10})
    figure, panels = pyplot.subplots(1, len(FACTORS), figsize=(11, 4.6), sharey=True, layout="constrained")
    for panel, factor in zip(panels, FACTORS, strict=True):
        _panel(panel, results, factor)
    panels[0].set_ylabel("probes from the first slow one to the finding (mean)")
    panels[0].legend(title="slow part", loc="upper right", framealpha=1)
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, metadata=metadata, dpi=110)
    if path.suffix == ".svg":
        path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text("utf-8").splitlines()))


def _panel(panel: Any, results: Results, factor: int) -> None:
    for resource, (marker, style) in zip((*ALONE, *ENDS), STYLES, strict=True):
        delays = []
        for lost in LOST:
            found = [one.found or NEVER for one in results.of(factor, lost, resource=resource)]
            delays.append(sum(found) / len(found))
        panel.plot(
            [100 * lost for lost in LOST], delays, marker=marker, markersize=4.5, linestyle=style,
            linewidth=1.3, label=resource.value, fillstyle="none",
        )  # fmt: skip
    panel.set_title("noise as measured" if factor == 1 else f"{factor} times the noise")
    panel.set_xscale("log")
    panel.set_xticks(TICKS, [str(one) for one in TICKS])
    panel.set_xticks([], minor=True)
    panel.set_yticks(range(NEVER + 1), [*(str(n) for n in range(NEVER)), f"not in {HORIZON}"])
    panel.set_ylim(0, NEVER + 0.5)
    panel.set_xlabel("speed lost (%)")
    panel.axvline(100 * POLICY.own, color="gray", linewidth=0.8)
    panel.annotate(
        f"the policy's limit\nis {100 * POLICY.own:g} %", (100 * POLICY.own, 6), (6, 0),
        textcoords="offset points", va="center", color="dimgray",
    )  # fmt: skip
    panel.grid(alpha=0.3)
