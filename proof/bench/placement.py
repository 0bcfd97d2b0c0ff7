"""How long a placement takes: `python -m proof.bench.placement [NODES]`.

Clusters of 8-GPU nodes in racks of 16 and leafs of 8, some of them partial, drawn with a fixed seed: seconds
of CPU of the solver, and of the whole answer with costs, other layouts and JSON, median and range of runs.
"""

import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from wirewatch_lab.advice.placement.cluster import read_cluster
from wirewatch_lab.advice.placement.jobs import Infeasible, PlacementJob
from wirewatch_lab.advice.placement.layouts import Workload, layout_cost
from wirewatch_lab.advice.placement.proposals import Proposals
from wirewatch_lab.advice.placement.solver import place
from wirewatch_lab.advice.placement.space import Level
from wirewatch_lab.advice.shapes import SHAPES

NODES, RUNS = 2000, 7
BUSY = ("", "", "", "", "busy = [0, 1]", "busy = [4, 5, 6, 7]", "drained = true")


def text(nodes: int) -> str:
    draw = random.Random(7)  # noqa: S311
    return "".join(
        f'[[nodes]]\nnames = "gpu{n:05}"\ngpus = 8\nproduct = "H100"\nports = "8xNDR"\n'
        f'rack = "r{n // 16}"\nleaf = "l{n // 8}"\n{draw.choice(BUSY)}\n'
        for n in range(nodes)
    )


def cases(nodes: int) -> tuple[tuple[str, tuple[PlacementJob, ...], Level], ...]:
    """What is asked, with the share of the GPUs that it takes."""
    return (
        ("TP 8, half of the nodes", (PlacementJob(8, 1, nodes // 2),), Level.DOMAIN),
        ("TP 4 x PP 4, half of the GPUs", (PlacementJob(4, 4, nodes // 4),), Level.DOMAIN),
        ("TP 8 x PP 16, most of it", (PlacementJob(8, 16, nodes // 32),), Level.DOMAIN),
        ("TP 1, 5 of 8 GPUs", (PlacementJob(1, 1, nodes * 5),), Level.DOMAIN),
        ("TP 2 x PP 7, half of the GPUs", (PlacementJob(2, 7, nodes * 2 // 7),), Level.DOMAIN),
        (
            "TP 6 and TP 4 side by side",
            (PlacementJob(6, 1, nodes // 3), PlacementJob(4, 1, nodes // 2)),
            Level.DOMAIN,
        ),
        (
            "TP 5, 4 and 3 side by side",
            tuple(PlacementJob(n, 1, nodes // 3) for n in (5, 4, 3)),
            Level.DOMAIN,
        ),
        ("TP 16, refused", (PlacementJob(16, 1, nodes // 4),), Level.DOMAIN),
        ("TP 16 across racks", (PlacementJob(16, 1, nodes // 4),), Level.CLUSTER),
    )


def main(nodes: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "nodes.toml"
        path.write_text(text(nodes), "utf-8")
        began = time.process_time()
        cluster = read_cluster(path)
        print(f"{nodes} nodes, {RUNS} runs; the file is read in {time.process_time() - began:.2f} s of CPU")
    shape = next(one for one in SHAPES if one.name == "llama-3-70b")
    proposals = Proposals(cluster, Workload(shape, example=True), degraded=False)
    print(f"| {'asked':<32} | answer | solver s (range) | with costs and other layouts s (range) |")
    for name, jobs, reach in cases(nodes):
        found = place(proposals.space(), jobs, reach)
        word = "no" if isinstance(found, Infeasible) else "yes"
        solver, whole = zip(*(measure(proposals, jobs, reach) for _ in range(RUNS)), strict=True)
        print(f"| {name:<32} | {word:<6} | {spread(solver)} | {spread(whole)} |", flush=True)


def measure(proposals: Proposals, jobs: Sequence[PlacementJob], reach: Level) -> tuple[float, float]:
    """Seconds of CPU: of the solver, and of all of an answer."""
    began = time.process_time()
    space = proposals.space()
    found = place(space, jobs, reach)
    solved = time.process_time()
    if isinstance(found, Infeasible):
        list(proposals.nearest(jobs[0], space, reach))
    else:
        for one in found:
            layout_cost(space, one, proposals.workload)
        list(proposals.beside(found[0], space))
    return solved - began, time.process_time() - began


def spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f}-{max(seconds):.2f})"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else NODES)
