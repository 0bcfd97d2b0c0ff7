"""What a probe takes from the node: seconds, memory, and how that compares with one run of nccl-tests."""

import statistics
from dataclasses import asdict
from typing import Any

from proof.hardware.kit import Report
from proof.hardware.nccltests import NcclTests
from proof.hardware.probing import Probing
from wirewatch.core.probe import ALL_REDUCE, Probed

ROUNDS = 5
KERNEL_SECONDS = 0.15
HELD_SECONDS = 6.0
MEMORY = 2 << 30
SIZE = "256M"


def run(here: Probing, oracle: NcclTests) -> None:
    """The default plan with copies and micro-probes, cold and then in turns with nccl-tests."""
    here.report.progress("cost: the first probe")
    probes = [here.must("cost cold")]
    processes: list[float] = []
    for number in range(2 * ROUNDS):
        # Every other round begins with the probe, so that a slow drift favours neither.
        if number % 4 in {0, 3}:
            processes.append(oracle.run(ALL_REDUCE, "-b", SIZE, "-e", SIZE).seconds)
        else:
            here.report.progress(f"cost: probe {len(probes)} of {ROUNDS}")
            probes.append(here.must("cost warm"))
    rows = [_row("cold" if n == 0 else f"warm {n}", one) for n, one in enumerate(probes)]
    header = ["probe", "seconds", "held", "done", "kernel seconds", "CPU seconds", "host MB", "peak MiB"]
    here.report.table("cost of the default plan", header, rows)
    here.report.note(oracle_process_seconds=processes, costs=[_cost(one) for one in probes])
    _judge(here.report, probes)
    _judge_seconds(here.report, [one.seconds for one in probes[1:]], processes)


def _cost(probed: Probed) -> dict[str, Any]:
    assert probed.document is not None
    return {
        "seconds": probed.seconds, "held_seconds": probed.held_seconds, **asdict(probed.document.cost),
        "memory": [[gpu.memory_before, gpu.memory_peak, gpu.memory_after] for gpu in probed.gpus],
    }  # fmt: skip


def _row(name: str, probed: Probed) -> list[object]:
    cost = _cost(probed)
    kernel = ", ".join(f"{one:.3f}" for one in cost["kernel_seconds"])
    peak = ", ".join(f"{grown / 2**20:.0f}" for grown in _grown(probed))
    return [
        name, round(probed.seconds, 3), round(probed.held_seconds, 3), round(cost["done"], 3), kernel,
        round(cost["cpu_seconds"], 2), cost["host_bytes"] // 10**6, peak,
    ]  # fmt: skip


def _grown(probed: Probed) -> list[int]:
    """Bytes that each GPU held at most beyond those of before; where that is not known, far too many."""
    return [
        1 << 62
        if gpu.memory_peak is None or gpu.memory_before is None
        else gpu.memory_peak - gpu.memory_before
        for gpu in probed.gpus
    ]


def _judge(report: Report, probes: list[Probed]) -> None:
    kernel = [max(one.document.cost.kernel_seconds, default=9.0) for one in probes if one.document]
    report.check(
        f"kernels take <= {KERNEL_SECONDS:g} s of each GPU", ok=max(kernel) <= KERNEL_SECONDS,
        told=f"most {max(kernel):.3f} s, median {statistics.median(kernel):.3f} s",
    )  # fmt: skip
    held = [one.held_seconds for one in probes]
    report.check(
        f"contexts are held for <= {HELD_SECONDS:g} s, cold and warm", ok=max(held) <= HELD_SECONDS,
        told=f"cold {held[0]:.2f} s, warm {statistics.median(held[1:]):.2f} s, most {max(held[1:]):.2f} s",
    )  # fmt: skip
    grown = [bytes_ for one in probes for bytes_ in _grown(one)]
    report.check(
        f"memory of each GPU grows by <= {MEMORY >> 30} GiB", ok=max(grown) <= MEMORY,
        told=f"most {max(grown) / 2**30:.3f} GiB",
    )  # fmt: skip
    kept = [gpu for one in probes for gpu in one.gpus if gpu.memory_after != gpu.memory_before]
    report.check("all memory is given back", ok=not kept, told=str(kept[:2]) if kept else "")


def _judge_seconds(report: Report, ours: list[float], theirs: list[float]) -> None:
    mine, other = statistics.median(ours), statistics.median(theirs)
    report.check(
        f"start to end of a probe is no longer than of all_reduce_perf -b {SIZE} -e {SIZE}", ok=mine <= other,
        told=f"medians of {len(ours)}: probe {mine:.3f} s, all_reduce_perf {other:.3f} s",
    )  # fmt: skip
