"""Nodes on which a drawn job runs, as the collectors leave them half a minute later."""

from dataclasses import replace

from tests.node.jobs.explain.drawn import NOW
from tests.node.jobs.lockstepjobs import measured
from tests.node.jobs.ringjobs import LINK_RATE, DrawnNode, JobShape, uuid
from wirewatch.collectors.gpu import GpuFacts, GpuNow
from wirewatch.collectors.nvlink import NvlinkFacts
from wirewatch.collectors.nvlink.model import NvlinkLink
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Failed, Finding, Ok, Why, value_or
from wirewatch.jobs.ledger.spent import GpuLedger, JobLedger, LedgerFacts, Spent
from wirewatch.jobs.lockstep import LockstepFacts
from wirewatch.jobs.times import RunningJob

OK = Ok(None, NOW, 10.0)
GONE = Absent(Why.TIMEOUT, "the driver hangs")


def component(name: str, facts: object, *findings: Finding, failed: bool = False) -> Component:
    outcome = Failed(GONE, NOW, 10.0) if failed else OK
    return Component(name, None, outcome, facts=facts, findings=findings, applicable=True)


def node(*components: Component) -> NodeState:
    return NodeState({one.name: one for one in components})


SECONDS = 30
THROUGH_MEMORY = 50e9
"""Bytes per second below which a drawn wire is not NVLink."""
LINKS = tuple(NvlinkLink(n, 1, LINK_RATE) for n in range(18))


def booked(job: RunningJob) -> JobLedger:
    """The ledger of a job, as its timed collectives have it."""
    gpus = []
    for gpu in job.gpus:
        wire = gpu.in_collectives - gpu.waiting
        beyond = wire * (1 - job.wire.ratio) if job.wire else 0.0
        shares = {
            Spent.COMPUTING: 1 - gpu.in_collectives, Spent.LOCAL_RANK: gpu.waiting, Spent.OTHER_NODE: 0.0,
            Spent.WIRE: wire - beyond, Spent.BEYOND: beyond, Spent.IDLE: 0.0, Spent.NOT_ATTRIBUTED: 0.0,
        }  # fmt: skip
        late = value_or(job.late.gpu, "") if job.late else ""
        waits = {late: gpu.waiting} if late not in {"", gpu.gpu} else {}
        gpus.append(GpuLedger(gpu.gpu, gpu.index, 300.0, shares, waits))
    short = tuple(replace(one, seconds=10.0) for one in gpus)
    return JobLedger(job.name, job.pids, 0.0, starting=False, short=short, long=tuple(gpus), one_job=True)


def watched(shape: JobShape, seed: int = 0) -> NodeState:
    """A node half a minute after the job was first seen, its GPUs as measured in data parallel training."""
    drawn = DrawnNode(shape, seed=seed)
    facts = drawn.poll(round(SECONDS / drawn.every))
    window = measured("data_parallel")[0][0]
    if shape.busbw < THROUGH_MEMORY:
        window = replace(window, sent=0.0, received=0.0)
    now = {uuid(n): GpuNow(n, 1.0, 650.0, (), frozenset({shape.pid + n})) for n in shape.gpus}
    return node(
        component("jobs", facts, *drawn.found),
        component(
            "lockstep",
            LockstepFacts(None, None, {uuid(n): window for n in shape.gpus}, "all wait alike", in_step=True),
        ),
        component("gpu", GpuFacts(frozenset(), now)),
        component("hangs", None),
        component("ledger", LedgerFacts(SECONDS, tuple(map(booked, facts.jobs)))),
        component("nvlink", NvlinkFacts({Gpu(n, uuid(n)): LINKS for n in shape.gpus})),
    )
