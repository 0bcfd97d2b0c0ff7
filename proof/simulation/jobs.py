"""How often running jobs are judged rightly, in proof/simulation/jobs.md: `make simulation`, three minutes.

Jobs are drawn (tests/node/jobs/ringjobs.py) and read by the real collector with its default policy. What is
counted: after how many seconds a fault is named, by its right name, and what healthy jobs are accused of.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.node.jobs.ringjobs import (
    BUCKETS,
    DDP,
    FSDP,
    LATE,
    LL,
    MIB,
    P2P_OFF,
    SMALL,
    TENSOR_PARALLEL,
    TRAINING,
    TREE,
    DrawnNode,
    JobShape,
)
from tools.prose import formatted
from wirewatch.jobs.running import COLLECTOR
from wirewatch.jobs.times import JobsFacts

PAGE = Path(__file__).with_name("jobs.md")
TRIALS = 20
WATCHED = 60.0
"""Seconds for which a job with a fault is watched, where not said otherwise."""
HEALTHY = 5000.0
"""Seconds of each healthy job, in runs of 500."""
RUN = 500.0
TWO, EIGHT = (0, 1), tuple(range(8))
BOTH = (("all_reduce", 256 * MIB), ("all_gather", 256 * MIB), ("reduce_scatter", 256 * MIB))


@dataclass(frozen=True)
class Fault:
    """A job with a fault: `late` the GPU that must be named, or else its wire."""

    name: str
    shape: JobShape
    late: str = ""
    watched: float = WATCHED


@dataclass(frozen=True)
class Named:
    """What came of one trial: seconds until it was named rightly, None for never, and any wrong name."""

    seconds: float | None
    wrong: bool


def faults() -> Iterator[Fault]:
    yield Fault("GPU 2 of 4 has 10 % more work", LATE, "2")
    yield Fault("GPU 1 of 2 has 10 % more work", replace(LATE, gpus=TWO, slow={1: 1.1}), "1")
    yield Fault("GPU 5 of 8 has 10 % more work", replace(LATE, gpus=EIGHT, slow={5: 1.1}), "5")
    for more in (0.02, 0.03, 0.04, 0.05, 0.07, 0.2):
        yield Fault(f"GPU 2 of 4 has {100 * more:g} % more work", replace(LATE, slow={2: 1 + more}), "2")
    yield Fault("the same 10 %, three operations", replace(LATE, calls=BOTH, work=0.09), "2")
    yield Fault(
        "the same 10 %, 32 small messages a step", replace(LATE, calls=(("all_reduce", 8192),) * 32), "2"
    )
    yield Fault("the same 10 %, DDP with overlap", replace(DDP, slow={2: 1.1}), "2")
    yield Fault("the same 10 %, FSDP with overlap", replace(FSDP, slow={2: 1.1}), "2")
    yield Fault("the same 10 %, DDP of 36 buckets, 2 GPUs", replace(BUCKETS, slow={1: 1.1}), "1")
    yield Fault("each step begun 5 ms late, DDP of 36 buckets", replace(BUCKETS, behind={1: 5e-3}), "1")
    yield Fault("the same 10 %, one step a second", replace(LATE, work=0.97), "2", 720.0)
    yield Fault("the same 10 %, one tap times half as much", replace(LATE, coarser={1: 1}), "2")
    yield Fault("the same 10 %, half of the records lost", replace(LATE, lost=0.16), "2", 120.0)
    yield Fault("the same 10 %, 4 of 8 ranks on this node", replace(LATE, ranks=8, nodes=2), "2")
    yield Fault("P2P off, 25 GB/s", P2P_OFF)
    yield Fault("P2P off, 2 GPUs", replace(P2P_OFF, gpus=TWO))
    yield Fault("P2P off, 2 GPUs, one with 4 % more work", replace(P2P_OFF, gpus=TWO, slow={1: 1.04}))
    yield Fault("Tree, 234 GB/s", TREE)
    yield Fault("LL, 150 GB/s", LL)
    for part in (0.5, 0.6, 0.65, 0.68, 0.72, 0.8):
        yield Fault(f"Ring at {100 * part:g} % of 340 GB/s", replace(TRAINING, busbw=part * 340e9))
    yield Fault("P2P off beside computing, FSDP", replace(FSDP, busbw=25.1e9))
    yield Fault("P2P off beside computing, DDP of 36 buckets", replace(BUCKETS, busbw=25.1e9))


def healthy() -> Iterator[tuple[str, JobShape]]:
    yield "training, 4 GPUs", TRAINING
    yield "training, 2 GPUs", replace(TRAINING, gpus=TWO)
    yield (
        "training, 8 GPUs, Ring, work that varies by 5 %",
        replace(TRAINING, gpus=EIGHT, busbw=350e9, noise=0.05),
    )
    yield "training, 8 GPUs, NVLS", replace(TRAINING, gpus=EIGHT, busbw=440e9, algorithm="NVLS")
    yield "training, 2 GPUs, work that varies by 5 %", replace(TRAINING, gpus=TWO, noise=0.05)
    yield "tensor parallel, 32 of 4 MiB a step", TENSOR_PARALLEL
    yield "32 small messages a step", SMALL
    for overlap in (0.1, 0.6, 1.0):
        yield f"DDP, stretched up to {1 + overlap:g} times", replace(DDP, overlap=overlap)
        yield f"FSDP, stretched up to {1 + overlap:g} times", replace(FSDP, overlap=overlap)
    yield "FSDP, 2 GPUs, one 3 % more than the other", replace(FSDP, gpus=TWO, uneven=0.06)
    yield "DDP, 2 GPUs, one 3 % more than the other", replace(DDP, gpus=TWO, uneven=0.06)
    for gpus in (TWO, (0, 1, 2, 3)):
        buckets = replace(BUCKETS, gpus=gpus, behind={0: 0.12e-3})
        yield f"DDP of 36 buckets, {len(gpus)} GPUs, one begins each step 0.12 ms late", buckets


def trial(fault: Fault, seed: int) -> Named:
    """One job with a fault, from its start on."""
    node = DrawnNode(fault.shape, seed=seed, every=COLLECTOR.options.interval)
    first: float | None = None
    wrong = False
    for poll, facts in enumerate(node.watch(fault.watched), 1):
        late = [job.late.index for job in facts.jobs if job.late is not None]
        wire = [job for job in facts.jobs if job.wire is not None]
        right = late == [fault.late] if fault.late else bool(wire)
        wrong = wrong or bool(wire if fault.late else late) or any(one != fault.late for one in late)
        if right and first is None:
            first = poll * node.every
    return Named(first, wrong or bool(node.found))


def accused(shape: JobShape) -> tuple[int, int, int]:
    """Windows of a healthy job, and polls at which it named somebody or called its wire slow."""
    windows = late = wire = 0
    for seed in range(round(HEALTHY / RUN)):
        node = DrawnNode(shape, seed=1000 + seed, every=COLLECTOR.options.interval)
        begun: set[float] = set()
        for facts in node.watch(RUN):
            begun |= _windows(facts)
            late += any(job.late is not None for job in facts.jobs)
            wire += any(job.wire is not None for job in facts.jobs)
        windows += len(begun)
    return windows, late, wire


def _windows(facts: JobsFacts) -> set[float]:
    return {one.started for job in facts.jobs for comm in job.communicators for one in comm.windows}


def named_rows() -> Iterator[Sequence[str]]:
    for fault in faults():
        found = [trial(fault, seed) for seed in range(TRIALS)]
        times = sorted(one.seconds for one in found if one.seconds is not None)
        soon = sum(seconds <= 30 for seconds in times)
        middle = f"{times[len(times) // 2]:.0f} s" if times else ""
        last = f"{times[-1]:.0f} s" if times else ""
        wrong = sum(one.wrong for one in found)
        yield fault.name, f"{soon}", f"{len(times)}", middle, last, f"{wrong}"


def accused_rows() -> Iterator[Sequence[str]]:
    for name, shape in healthy():
        yield (name, *(f"{count:,}" for count in accused(shape)))


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [head, ["--"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    policy = COLLECTOR.policy
    return formatted(f"""# Running jobs, simulated

Written by `make simulation`: jobs that are drawn, not measured, read by the real collector `jobs`
with its default policy. How it judges and why so is in
[ADR 0050](../../docs/adr/0050-wire-time-of-jobs.md); what is known of real jobs is in proof/hardware.

What is drawn: ranks arrive at a collective when their own work is done and leave it together; work varies
by 0.2 % and the wire by 0.3 % unless said; the wire gives 340 GB/s; a step is 31 ms of work and one
all_reduce of 256 MiB unless said. Each tap times 50 calls a second, or all that there are. With overlap a
collective takes 1 to so many times as long, drawn again each time, and each rank's kernel a few per cent
more than the next one's. DDP of 36 buckets: of 32 MiB each, over 33 ms behind a forward pass of 16 ms,
stretched up to 1.3 times. The collector reads every {COLLECTOR.options.interval:g} s, windows are
{policy.window:g} s and more.

## A fault, from the start of its job

Of {TRIALS} trials each: how many are named within 30 s and within a minute, after what time (median and
last), and in how many anything wrong was said at any time: another GPU, the wire of a late GPU's job, a
late GPU where it is the wire, or a finding without a witness. One step a second is watched for 12 minutes,
lost records for two. A rank must cost the others {100 * policy.cost:g} % of the time, and a wire that
nothing explains must be below {100 * policy.ratio:g} %: what is under or near that is not named, or not
always.

{table(("fault", "in 30 s", "named", "median", "last", "wrong"), named_rows())}

## Healthy jobs

{HEALTHY:,.0f} s of each: windows, polls at which somebody was named as late, and polls at which its wire was
called slow, which is a hint and no finding. `one 3 % more`: kernels of one GPU last longer each time.

{table(("job", "windows", "late", "wire"), accused_rows())}
""")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
