"""A node's part in a pair: the gate, one worker, counters around it, and its answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wirewatch.busbw.formulas import FACTORS
from wirewatch.core.account import Account
from wirewatch.core.ports import Gpu, Hardware, Order
from wirewatch.core.probe import ALL_REDUCE, SEND, Case, Meeting, Plan, Probed, Timed
from wirewatch.core.types import Absent
from wirewatch.nccl.log import wire
from wirewatch.probe.counters import is_congestion, nic_counts
from wirewatch.probe.gate import (
    Refusal,
    SkipReason,
    Stillness,
    candidates,
    new_allocations,
    new_holds,
    read_facts,
    refuse,
    watch_users,
)
from wirewatch.probe.model import ProbeOptions
from wirewatch_fleet.pairs.model import PairEnd
from wirewatch_fleet.rounds.answer import Cause, PeerAnswer
from wirewatch_fleet.rounds.partner import NotMet, meet
from wirewatch_fleet.rounds.plan import PairPlan

THERE, BACK, RAILS = 0, 1, 2
"""Groups of the plan: all ranks, the same with the second node's first, and two for each rail."""
_NETWORK = frozenset({"net_ib_gdr", "net_ib", "net_socket", "net_other"})
_SENT, _RECEIVED = "sent", "received"


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """This node's place in the plan, its job (`slurm:ID`, `pod:UID`), and its stop signal."""

    plan: PairPlan
    name: str
    owner: str | None = None
    withdrawn: Callable[[], str | None] = lambda: None


def with_partner(hardware: Hardware, asked: PeerRequest, options: ProbeOptions) -> PeerAnswer:
    """Meet the other node, then measure with it; if it ends before this is done, this node ends too."""
    try:
        partner = meet(asked.plan, asked.name, asked.withdrawn)
    except NotMet as error:
        cause: Cause = "preempted" if asked.withdrawn() else "failed"
        return _answer(hardware, asked, cause, str(error))
    with partner:
        watched = replace(asked, withdrawn=lambda: asked.withdrawn() or partner.gone())
        answer = take_part(hardware, watched, options)
        if partner.lost and answer.cause in {"preempted", "failed"} and not asked.withdrawn():
            answer = replace(answer, cause="failed", why=partner.lost)
        partner.tell(f"{answer.cause}: {answer.why}" if answer.cause else "")
        return answer


def take_part(hardware: Hardware, asked: PeerRequest, options: ProbeOptions) -> PeerAnswer:
    """Measure with the other node, if the gate allows; obstacles become the answer."""
    with hardware.probe.lock() as other:
        order = Refusal(SkipReason.LOCKED, other) if other else _ordered(hardware, asked, options)
        if isinstance(order, Refusal):
            return _answer(hardware, asked, "refused", f"{order.reason.value}: {order.detail}")
        return carry_out(hardware, asked, order)


def carry_out(hardware: Hardware, asked: PeerRequest, order: Order) -> PeerAnswer:
    """Measure with the other node by an unobstructed order."""
    before = nic_counts(hardware.sysfs)
    probed = hardware.probe.run(order)
    after = nic_counts(hardware.sysfs)
    return _measured(hardware, asked, probed, _grown(before, after))


def worker_plan(plan: PairPlan, name: str, ranks: Sequence[str]) -> Plan:
    """Return the plan of a node's worker; `ranks`: its GPUs, or the names of its processes."""
    count = len(ranks)
    first, second = tuple(range(count)), tuple(range(count, 2 * count))
    rails = [way for a, b in zip(first, second, strict=True) for way in ((a, b), (b, a))]
    host, port = plan.address
    work = plan.work
    groups = ((*first, *second), (*second, *first), *(rails if count > 1 else ()))
    sends = [Case(n, SEND, work.size_bytes, "stream", work.iterations) for n in _in_turn(len(groups))]
    return Plan(
        engine=work.engine, gpus=tuple(ranks), groups=groups, ops=(), latency_sizes=(), bandwidth=(),
        warmup=work.warmup, copy_bytes=0, micro=False, environment=tuple(work.environment.items()),
        cases=(*sends, Case(THERE, ALL_REDUCE, work.size_bytes, "stream", work.iterations)),
        meeting=Meeting(host, port, int(name == plan.second), 2, work.seconds),
    )  # fmt: skip


def _in_turn(groups: int) -> Iterator[int]:
    """Yield the rails one after the other, then all at once."""
    yield from range(RAILS, groups)
    yield from (THERE, BACK)


def _ordered(hardware: Hardware, asked: PeerRequest, options: ProbeOptions) -> Order | Refusal:
    """Return the worker's order, or why there is none: by the gate of a probe, for so many GPUs."""
    work = asked.plan.work
    engine = hardware.probe.engine(work.engine)
    if isinstance(engine, Absent):
        return Refusal(SkipReason.NO_ENGINE, engine.detail)
    if work.engine == "gloo":
        # It touches no GPU, so no process can be in its way.
        return peer_order(hardware, asked, (), [f"cpu:{n}" for n in range(work.ranks)])
    listed = hardware.nvml.gpus()
    if isinstance(listed, Absent):
        return Refusal(SkipReason.BLIND, f"the GPUs cannot be listed: {listed}")
    facts = read_facts(hardware, listed, slurm=True)
    limits = replace(options.limits(), settle=0.0, gpus=work.ranks)
    refusal = refuse(facts, watch_users(Stillness(), facts), limits, asked.owner)
    if refusal is not None:
        return refusal
    gpus = candidates(facts, asked.owner)[: work.ranks]
    names = [gpu.uuid for gpu in gpus]
    order = peer_order(hardware, asked, gpus, names, new_allocations(hardware, gpus, facts))
    return replace(order, held=new_holds(hardware, gpus, facts, asked.owner))


def peer_order(
    hardware: Hardware, asked: PeerRequest, gpus: tuple[Gpu, ...], ranks: Sequence[str],
    allocations: Callable[[], str | None] = lambda: None,
) -> Order:  # fmt: skip
    """Return the worker's order on `gpus`, whose names (or names of processes) are `ranks`.

    `allocations`: GPUs that another process has taken meanwhile, which ends the worker; None for none.
    """
    return Order(
        plan=worker_plan(asked.plan, asked.name, ranks), gpus=gpus, conditions=(),
        settings=hardware.probe.settings(), allocations=allocations, by="command",
        deadline=asked.plan.work.seconds, withdrawn=asked.withdrawn,
    )  # fmt: skip


def _measured(
    hardware: Hardware, asked: PeerRequest, probed: Probed, grown: Mapping[tuple[str, str], int]
) -> PeerAnswer:
    document = probed.document
    timed = () if document is None else document.collectives
    wrong = sum(one.wrong for one in timed)
    cause, why = _in_the_way(probed, wrong)
    answer = replace(
        _answer(hardware, asked, cause, why), end=_end(probed, grown), seconds=probed.seconds,
        gpu_seconds=probed.held_seconds * len(probed.gpus),
    )  # fmt: skip
    return answer if cause else _with_rates(answer, asked.plan.work.ranks, timed)


def _in_the_way(probed: Probed, wrong: int) -> tuple[Cause, str]:
    if probed.outcome == "preempted":
        return "preempted", probed.why
    if probed.outcome == "failed":
        return "failed", probed.why
    if probed.outcome != "ok":
        return "failed", f"{probed.outcome}: {probed.why}"
    return ("failed", f"wrong data: {wrong} elements did not come as they were sent") if wrong else ("", "")


def _with_rates(answer: PeerAnswer, ranks: int, timed: Sequence[Timed]) -> PeerAnswer:
    """Add rates from the times: for sends the bytes of all rails, for an all_reduce the busbw."""
    sends = {one.group: one.size_bytes / one.seconds for one in timed if one.op == SEND}
    reduced = next(one for one in timed if one.op == ALL_REDUCE)
    rails: dict[str, tuple[float | None, float | None]] = {
        str(rail): (sends[RAILS + 2 * rail], sends[RAILS + 2 * rail + 1])
        for rail in range(ranks if ranks > 1 else 0)
    }
    return replace(
        answer, sends=sends[THERE] * ranks, receives=sends[BACK] * ranks, rails=rails,
        all_reduce=FACTORS[ALL_REDUCE](2 * ranks) * reduced.size_bytes / reduced.seconds,
    )  # fmt: skip


def _end(probed: Probed, grown: Mapping[tuple[str, str], int]) -> PairEnd:
    """Return this node's observations: the network in NCCL's log, and the growth of its counters."""
    counted = {(name, kind): n for (name, kind), n in grown.items() if kind not in {_SENT, _RECEIVED}}
    full = {f"{name} {kind}": n for (name, kind), n in counted.items() if is_congestion(kind)}
    errors = {f"{name} {kind}": n for (name, kind), n in counted.items() if not is_congestion(kind)}
    for part in probed.parts:
        for moved in part.moved:
            for kind, count in moved.errors.items():
                name = f"GPU {probed.gpus[moved.gpu].index} NVLink {kind}"
                errors[name] = errors.get(name, 0) + count
    transport, direct = _network(probed.account)
    return PairEnd(
        transport=probed.plan.engine if probed.plan.engine == "gloo" else transport, gpudirect=direct,
        versions={} if probed.document is None else dict(probed.document.versions),
        sent={name: n for (name, kind), n in grown.items() if kind == _SENT and n},
        received={name: n for (name, kind), n in grown.items() if kind == _RECEIVED and n},
        errors={name: n for name, n in errors.items() if n}, congestion=full,
    )  # fmt: skip


def _network(account: Account | None) -> tuple[str, bool | None]:
    """Return NCCL's way to the other node, without numbers of cards, and whether all of it is direct."""
    used = {one.transport for comm in (account.comms if account else ()) for one in comm.connections}
    leaving = {one for one in used if wire(one) in _NETWORK}
    if not leaving:
        return "", None
    names = sorted({"/".join(one.split("/")[:2]) for one in leaving})
    return ", ".join(names), all(wire(one) == "net_ib_gdr" for one in leaving)


def _grown(
    before: Mapping[tuple[str, str], int], after: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], int]:
    """Return the growth of counters, without counters that vanished or were reset."""
    return {key: after[key] - value for key, value in before.items() if after.get(key, -1) >= value}


def _answer(hardware: Hardware, asked: PeerRequest, cause: Cause, why: str) -> PeerAnswer:
    plan = asked.plan
    return PeerAnswer(
        "wirewatch.fleet-peer/1", hardware.clock.now(), asked.name, plan.first, plan.second, cause, why
    )
