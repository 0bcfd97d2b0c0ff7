"""Judges dumps of PyTorch's Flight Recorder: who is missing, who differs, who waits for whom.

A rank is missing from a collective if others wait in it and its own dump shows that it did not call it. A
rank without a dump is never named as missing.
"""

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

from wirewatch.core import words
from wirewatch.core.types import Health as NodeHealth
from wirewatch.core.words import count, first, utc
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.documents.health import HEALTH_NAMES, Health
from wirewatch_lab.study.flightdumps import FORMATS, CallShape, RankDump, RecordedCall

FaultKind = Literal["mismatch", "deadlock", "missing", "message", "standing"]
_RANK = re.compile(r"[0-9]{1,7}")
_MANY = 8
"""Ranks that a sentence names."""
_UNEVEN = ("all_to_all", "alltoall", "all_gather_v", "reduce_scatter_v", "split", "new_window")


@dataclass(frozen=True, slots=True)
class FlightRank:
    """A rank's dump. `gpu`: its number on its host, as torchrun orders ranks; null where that is not known.

    `waits`: the call that has waited longest, empty where none does; `where`: the job's line of that call, or
    of its last call. `lost`: older calls are no longer in the dump.
    """

    rank: int
    host: str
    gpu: int | None
    file: str
    format: str
    library: str
    calls: int
    lost: bool
    waits: str
    where: str


@dataclass(frozen=True, slots=True)
class FlightGroup:
    """A process group. `ranks_known`: its ranks are from the dumps' configuration, else from their calls.

    `reached`: each rank's newest collective, null where its dump does not show one.
    """

    name: str
    desc: str
    ranks: list[int]
    ranks_known: bool
    reached: dict[str, int | None]
    no_dump: list[int]


@dataclass(frozen=True, slots=True)
class FlightFault:
    """Something that keeps the job from going on. `ranks`: those that it names; none if nothing shows which.

    `waiting`: ranks that wait. `seq`: the collective's number in its group; 0 of messages. `since`: Unix
    seconds of the first call that waits. `text`: all of it for people.
    """

    kind: FaultKind
    group: str
    desc: str
    seq: int
    ranks: list[int]
    waiting: list[int]
    no_dump: list[int]
    since: float
    text: str


@dataclass(frozen=True, slots=True)
class FlightDocument:
    """What dumps of the flight recorder show, and the verdict. `no_dump`: ranks of groups that left none.

    `not_read`: files that could not be read, each with the reason. `remarks` limit what can be said.
    """

    schema: Literal["wirewatch.flight-recorder/1"]
    at: float
    health: Health
    why: str
    ranks: list[FlightRank]
    no_dump: list[int]
    not_read: list[str]
    groups: list[FlightGroup]
    faults: list[FlightFault]
    remarks: list[str]


FLIGHT = TypeAdapter(FlightDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.flight-recorder.1": FLIGHT}


@dataclass(slots=True)
class _Group:
    """A process group, and the collectives that each rank's dump has of it."""

    name: str
    desc: str
    members: tuple[int, ...]
    known: bool
    calls: dict[int, dict[int, list[RecordedCall]]] = field(default_factory=dict)

    @property
    def said(self) -> str:
        return _group_said(self.name, self.desc)

    def newest(self, rank: int) -> int | None:
        return max(self.calls.get(rank, ()), default=None)


@dataclass(slots=True)
class _Waits:
    """Ranks that wait in one collective, and the members that did not call it, or whose dump does not say."""

    group: _Group
    seq: int
    waiting: dict[int, RecordedCall]
    missing: list[int]
    no_dump: list[int]
    unclear: list[int]

    @property
    def since(self) -> float:
        return min(call.created for call in self.waiting.values())

    @property
    def call(self) -> RecordedCall:
        return next(iter(self.waiting.values()))


class FlightJudge:
    """What the dumps of a job show together."""

    def __init__(self, dumps: Iterable[RankDump]) -> None:
        self.dumps = {dump.rank: dump for dump in dumps}
        self.gpus = dict(_gpus(self.dumps.values()))
        self.groups = _groups(self.dumps)
        self.waits = [one for one in map(self._wait, self.groups) if one is not None]

    def document(self, not_read: Sequence[str]) -> FlightDocument:
        """Return all of it, with the verdict."""
        faults = list(self._mismatches())
        differ = {(one.group, one.desc) for one in faults}
        waits = [one for one in self.waits if (one.group.name, one.group.desc) not in differ]
        faults += [*self._deadlock(), *self._messages()]
        faults += [self._missing(one) if one.missing else self._standing(one) for one in waits]
        faults.sort(key=lambda one: (_ORDER.index(one.kind), self._inherits(one), one.since))
        no_dump = sorted({rank for group in self.groups for rank in self._without(group)})
        health, why = self._verdict(faults, no_dump, not_read)
        return FlightDocument(
            "wirewatch.flight-recorder/1", time.time(), HEALTH_NAMES[health], why,
            [self._rank(dump) for _, dump in sorted(self.dumps.items())], no_dump, list(not_read),
            [self._group(group) for group in self.groups], faults, list(self._remarks()),
        )  # fmt: skip

    def named(self, ranks: Collection[int]) -> str:
        """Ranks in a sentence, each with its host and GPU where they are known."""
        said = []
        for rank in sorted(ranks)[:_MANY]:
            host = self.dumps[rank].host if rank in self.dumps else ""
            gpu = self.gpus.get(rank)
            place = ", ".join(part for part in (host, "" if gpu is None else f"GPU {gpu}") if part)
            said.append(f"{rank} ({place})" if place else f"{rank}")
        more = len(ranks) - len(said)
        listed = ", ".join(said) + f" and {more} more" if more > 0 else words.either(said, "and")
        return f"rank{'' if len(ranks) == 1 else 's'} {listed}"

    def _without(self, group: _Group) -> list[int]:
        return [rank for rank in group.members if rank not in self.dumps]

    def _wait(self, group: _Group) -> _Waits | None:
        """The first collective of a group in which ranks wait; later ones wait for it.

        One that a rank has completed counts only if nothing else waits: all have come to it.
        """
        found = None
        for seq in sorted({seq for calls in group.calls.values() for seq in calls}):
            there = {rank: calls[seq] for rank, calls in group.calls.items() if seq in calls}
            waiting = {rank: next((c for c in calls if not c.done), None) for rank, calls in there.items()}
            own = {rank: call for rank, call in waiting.items() if call is not None}
            if own:
                found = self._waiting(group, seq, own)
                if found.missing or len(own) == len(there):
                    break
        return found

    def _waiting(self, group: _Group, seq: int, waiting: dict[int, RecordedCall]) -> _Waits:
        missing: list[int] = []
        unclear: list[int] = []
        for rank in group.members:
            newest = group.newest(rank)
            if rank not in self.dumps or (newest is not None and newest >= seq):
                continue
            dump = self.dumps[rank]
            unsure = dump.gaps or (newest is None and dump.lost)
            (unclear if unsure else missing).append(rank)
        return _Waits(group, seq, waiting, missing, self._without(group), unclear)

    def _mismatches(self) -> Iterator[FlightFault]:
        """The first collective of each group that its ranks do not call alike; later ones follow from it."""
        for group in self.groups:
            for seq in sorted({seq for calls in group.calls.values() for seq in calls}):
                there = {rank: calls[seq] for rank, calls in group.calls.items() if seq in calls}
                kinds: dict[Any, list[int]] = defaultdict(list)
                for rank, calls in there.items():
                    kinds[tuple(_alike(call.shape) for call in calls)].append(rank)
                if len(kinds) > 1:
                    yield self._mismatch(group, seq, there, sorted(kinds.values(), key=len, reverse=True))
                    break

    def _mismatch(
        self, group: _Group, seq: int, there: Mapping[int, Sequence[RecordedCall]], kinds: Sequence[list[int]]
    ) -> FlightFault:
        most, *others = kinds
        odd = [] if len(most) == len(others[0]) else sorted(rank for ranks in others for rank in ranks)
        said = [
            f"{self.named(ranks)} {_verb(ranks, 'call')} {_said(there[ranks[0]])}"
            for ranks in (*others, most)
        ]
        since = min(call.created for calls in there.values() for call in calls)
        text = f"the ranks of {group.said} do not make the same call {seq}: {'; '.join(said[:_MANY])}"
        text += self._where(odd[0], there[odd[0]][0].where) if odd else "; neither side is the larger one"
        waiting = sorted(rank for rank, calls in there.items() if not all(call.done for call in calls))
        return FlightFault(
            "mismatch", group.name, group.desc, seq, odd, waiting, self._without(group), since, text
        )

    def _missing(self, one: _Waits) -> FlightFault:
        call = one.call
        text = (
            f"{self.named(one.missing)} did not call {_said([call])}, number {one.seq} of {one.group.said}, "
            f"in which {self.named(one.waiting)} {_verb(one.waiting, 'wait')}{_since(one.since)}"
        )
        inherited = {rank: self._blocked(rank) for rank in one.missing}
        if all(inherited.values()):
            rank, other = next(iter(inherited.items()))
            text += f"; rank {rank} itself waits in {other}"
        elif len(one.missing) == 1:
            last = self.dumps[one.missing[0]].calls[-1:]
            text += self._where(one.missing[0], last[0].where, "its last call was at ") if last else ""
        text += self._unsaid(one)
        return FlightFault(
            "missing", one.group.name, one.group.desc, one.seq, one.missing, sorted(one.waiting),
            one.no_dump, one.since, text,
        )  # fmt: skip

    def _standing(self, one: _Waits) -> FlightFault:
        late = any(call.late for call in one.waiting.values())
        all_of = "all of them" if one.no_dump or one.unclear else "all ranks"
        text = (
            f"{self.named(one.waiting)} {_verb(one.waiting, 'wait')} in {_said([one.call])}, number "
            f"{one.seq} of {one.group.said}{_since(one.since)}: {all_of} called it alike"
        )
        text += ", and its time-out passed" if late else "; whether it stands or runs the dumps do not show"
        return FlightFault(
            "standing", one.group.name, one.group.desc, one.seq, [], sorted(one.waiting), one.no_dump,
            one.since, text + self._unsaid(one),
        )  # fmt: skip

    def _unsaid(self, one: _Waits) -> str:
        said = f"; {self.named(one.no_dump)} left no dump, which shows nothing" if one.no_dump else ""
        lost = f"; the dump of {self.named(one.unclear)} no longer shows it" if one.unclear else ""
        return said + lost

    def _where(self, rank: int, where: str, before: str = "at ") -> str:
        return f"; rank {rank}: {before}{where}" if where else ""

    def _blocked(self, rank: int) -> str:
        """The oldest collective in which a rank itself waits."""
        own = (call for call in self.dumps[rank].calls if not (call.done or call.p2p))
        oldest = min(own, key=lambda call: call.created, default=None)
        return "" if oldest is None else f"number {oldest.seq} of {_group_said(oldest.group, oldest.desc)}"

    def _inherits(self, fault: FlightFault) -> bool:
        return fault.kind == "missing" and all(map(self._blocked, fault.ranks))

    def _deadlock(self) -> Iterator[FlightFault]:
        """Ranks that wait for each other in a ring."""
        edges: dict[int, set[int]] = defaultdict(set)
        for one in self.waits:
            for rank in one.waiting:
                edges[rank].update(one.missing)
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            ring = list(dict.fromkeys(error.args[1]))[::-1]
            steps = []
            for rank, other in zip(ring, [*ring[1:], ring[0]], strict=True):
                one = next(one for one in self.waits if rank in one.waiting and other in one.missing)
                call = _said([one.waiting[rank]])
                text = f"rank {rank} waits in {call}, number {one.seq} of {one.group.said}, for rank {other}"
                steps.append((one, text))
            text = f"a deadlock of {self.named(ring)}: " + "; ".join(step for _, step in steps[:_MANY])
            wait = steps[0][0]
            yield FlightFault(
                "deadlock", wait.group.name, wait.group.desc, wait.seq, sorted(ring), sorted(ring), [],
                min(one.since for one, _ in steps), text,
            )  # fmt: skip

    def _messages(self) -> Iterator[FlightFault]:
        """Sends and receives that wait, and whose other side does not."""
        for group in self.groups:
            ends: dict[tuple[int, int], dict[str, list[RecordedCall]]] = defaultdict(
                lambda: defaultdict(list)
            )
            for rank in (rank for rank in group.members if rank in self.dumps):
                for call in self.dumps[rank].calls:
                    if call.group == group.name and not call.done and (found := _ends(call, group, rank)):
                        ends[found[1:]][found[0]].append(call)
            for (source, target), sides in ends.items():
                fault = self._message(group, source, target, sides)
                if fault is not None:
                    yield fault

    def _message(
        self, group: _Group, source: int, target: int, sides: Mapping[str, Sequence[RecordedCall]]
    ) -> FlightFault | None:
        sends, receives = sides.get("send", ()), sides.get("recv", ())
        waits, other = (source, target) if sends else (target, source)
        call = (sends or receives)[0]
        if other not in self.dumps or self.dumps[other].gaps:
            return None
        if sends and receives:
            a, b = sends[0].shape, receives[0].shape
            if (a.inputs, a.input_types) == (b.outputs, b.output_types):
                return None
            text = f"rank {source} sends {_tensor(a.inputs, a.input_types)} to rank {target}, which receives "
            text += _tensor(b.outputs, b.output_types)
        else:
            text = f"{self.named([waits])} waits in a {'send to' if sends else 'receive from'} rank {other}, "
            text += f"which does not wait in the other half{_since(call.created)}"
        named = [] if sends and receives else [other]
        return FlightFault(
            "message", group.name, group.desc, 0, named, [waits], [], call.created, f"{group.said}: {text}"
        )

    def _verdict(
        self, faults: Sequence[FlightFault], no_dump: Sequence[int], not_read: Sequence[str]
    ) -> tuple[NodeHealth, str]:
        if faults:
            worst = faults[0]
            late = any(call.late for one in self.waits for call in one.waiting.values())
            failed = worst.kind != "standing" or late
            more = f" ({len(faults) - 1} more below)" if len(faults) > 1 else ""
            return NodeHealth.FAILED if failed else NodeHealth.UNKNOWN, worst.text + more
        calls = sum(len(dump.calls) for dump in self.dumps.values())
        compared = any(len(group.calls) > 1 for group in self.groups)
        known = all(group.known for group in self.groups)
        lacks = f"{self.named(no_dump)} left no dump" if no_dump else first(not_read, 1)
        lacks = lacks or ("" if compared else "there is nothing to compare")
        lacks = lacks or ("" if known else "they do not list the ranks of all groups")
        if lacks:
            return NodeHealth.UNKNOWN, f"nobody waits in these dumps, but {lacks}"
        of = f"all {count(calls, 'call')} of {count(len(self.dumps), 'rank')}"
        return NodeHealth.OK, f"nobody waits: {of} are complete and alike"

    def _rank(self, dump: RankDump) -> FlightRank:
        waiting = min(
            (call for call in dump.calls if not call.done), key=lambda one: one.created, default=None
        )
        shown = waiting or (dump.calls[-1] if dump.calls else None)
        waits = (
            ""
            if waiting is None
            else f"{_said([waiting])}, number {waiting.seq} of group {waiting.group}, {waiting.state}"
        )
        return FlightRank(
            dump.rank, dump.host, self.gpus.get(dump.rank), dump.file, dump.format, dump.library,
            len(dump.calls), dump.lost, waits, "" if shown is None else shown.where,
        )  # fmt: skip

    def _group(self, group: _Group) -> FlightGroup:
        reached = {str(rank): group.newest(rank) for rank in group.members}
        return FlightGroup(
            group.name, group.desc, list(group.members), group.known, reached, self._without(group)
        )

    def _remarks(self) -> Iterator[str]:
        dumps = self.dumps.values()
        lost = [dump.rank for dump in dumps if dump.lost]
        if lost:
            yield f"the buffer of {self.named(lost)} was full: older calls are gone (TORCH_FR_BUFFER_SIZE)"
        if gaps := [dump.rank for dump in dumps if dump.gaps]:
            yield f"the dump of {self.named(gaps)} has gaps between its calls: what it lacks shows nothing"
        formats = sorted({dump.format for dump in dumps})
        if not set(formats) <= FORMATS:
            yield f"format {first(formats)}: known are 2.4 to 2.10, and what others mean may differ"
        elif len(formats) > 1:
            yield f"the dumps have different formats: {first(formats, _MANY)}"
        if unknown := [group for group in self.groups if not group.known]:
            said = first([one.said for one in unknown])
            yield f"the dumps do not list the ranks of {said}: ranks without a dump cannot be seen"
        for group in self.groups:
            yield from self._older(group)

    def _older(self, group: _Group) -> Iterator[str]:
        done = {rank: max((seq for seq, calls in by_seq.items() if all(c.done for c in calls)), default=0)
                for rank, by_seq in group.calls.items()}  # fmt: skip
        newest = max(done.values(), default=0)
        behind = [rank for rank in done if (group.newest(rank) or 0) < newest]
        if behind:
            yield (
                f"{self.named(behind)} {_verb(behind, 'end')} before number {newest} of {group.said}, which "
                "others have completed: an older dump, or a call that does not wait for all"
            )


_ORDER: Sequence[FaultKind] = ("mismatch", "deadlock", "missing", "message", "standing")


def _groups(dumps: Mapping[int, RankDump]) -> list[_Group]:
    """Groups by name and ranks: groups that were split may share a name."""
    found: dict[tuple[str, tuple[int, ...]], _Group] = {}
    for rank, dump in sorted(dumps.items()):
        own: dict[str, _Group] = {}
        for name, (desc, ranks) in dump.groups.items():
            if ranks:
                own[name] = found.setdefault((name, ranks), _Group(name, desc, ranks, known=True))
        for call in dump.calls:
            group = own.get(call.group)
            if group is None:
                group = own[call.group] = found.setdefault(
                    (call.group, ()), _Group(call.group, call.desc, (), known=False)
                )
            if not group.known and rank not in group.members:
                group.members = (*group.members, rank)
            if not call.p2p:
                group.calls.setdefault(rank, {}).setdefault(call.seq, []).append(call)
    return list(found.values())


def _gpus(dumps: Collection[RankDump]) -> Iterator[tuple[int, int]]:
    """Numbers of GPUs where hosts have as many ranks each, in a row, from a multiple of their number on."""
    hosts: dict[str, list[int]] = defaultdict(list)
    for dump in dumps:
        hosts[dump.host].append(dump.rank)
    most = max(map(len, hosts.values()), default=0)
    if "" in hosts or any(
        len(r) != most or min(r) % most or max(r) - min(r) != most - 1 for r in hosts.values()
    ):
        return
    yield from ((dump.rank, dump.rank % most) for dump in dumps)


def _ends(call: RecordedCall, group: _Group, rank: int) -> tuple[str, int, int] | None:
    """`send` or `recv` of a rank, and the source and target of its message, as the job's ranks."""
    kind, _, peers = call.shape.op.partition(" ")
    source, arrow, target = peers.partition("->") if kind == "send" else peers.partition("<-")[::-1]
    if not arrow or not (_RANK.fullmatch(source) and _RANK.fullmatch(target)):
        return None
    places = int(source), int(target)
    if max(places) >= len(group.members):
        return None
    ends = group.members[places[0]], group.members[places[1]]
    return (kind, *ends) if ends[0] != ends[1] and rank == ends[kind == "recv"] else None


def _alike(shape: CallShape) -> tuple[Any, ...]:
    """All that must be the same on each rank: not tensors that a root alone has, or of uneven sizes."""
    op = shape.op
    if op.startswith(_UNEVEN) or op.endswith("coalesced"):
        return (op,)
    ins = () if op == "scatter" else (shape.inputs, shape.input_types)
    outs = () if op == "gather" else (shape.outputs, shape.output_types)
    return op, ins, outs


def _group_said(name: str, desc: str) -> str:
    return f"group {name}" + (f" ({desc})" if desc not in {"", "undefined"} else "")


def _said(calls: Sequence[RecordedCall]) -> str:
    """Calls in a sentence: `all_reduce of 1024 Float`."""
    shapes = [f"{one.shape.op} of {_tensor(one.shape.inputs, one.shape.input_types)}" for one in calls]
    return first(shapes, 2, " + ")


def _tensor(elements: Sequence[int], types: Sequence[str]) -> str:
    return f"{sum(elements)} {'/'.join(dict.fromkeys(types)) or 'elements'}"


def _verb(ranks: Collection[int], verb: str) -> str:
    return f"{verb}s" if len(ranks) == 1 else verb


def _since(at: float) -> str:
    return f" since {utc(at)}" if at else ""
