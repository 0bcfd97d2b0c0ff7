"""Judges dumps of PyTorch's Flight Recorder: missing ranks, differing ranks, and who waits for whom.

A rank is missing from a collective if others wait in it and its own dump shows no such call. A rank without a
dump is never named as missing.
"""

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import dropwhile, pairwise
from typing import Any, Literal

from wirewatch.core import words
from wirewatch.core.types import Health as NodeHealth
from wirewatch.core.words import count, first, utc
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.documents.health import HEALTH_NAMES, Health
from wirewatch_lab.study.flightdumps import FORMATS, CallShape, RankDump, RecordedCall

_Part = tuple[Any, ...]
_Parts = tuple[_Part, ...]
FaultKind = Literal["mismatch", "deadlock", "missing", "message", "standing"]
_MESSAGE = re.compile(r"(send|recv) ([0-9]{1,7})(->|<-)([0-9]{1,7})")
_MANY = 8
"""Ranks named in a sentence."""
_MEETS = re.compile(r"_?(all_?reduce|all_?gather|reduce_scatter|barrier)")
"""Collectives that complete only after all ranks have called them, unlike a broadcast at its root."""
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
    """A process group, and each rank's collectives of it by number."""

    name: str
    desc: str
    members: tuple[int, ...]
    known: bool
    calls: dict[int, dict[int, list[RecordedCall]]] = field(default_factory=dict)

    @property
    def said(self) -> str:
        return _group_said(self.name, self.desc)

    @property
    def completed(self) -> int:
        """Return the number of the newest collective that all ranks reached, since some rank completed it."""
        own = (item for calls in self.calls.values() for item in calls.items())
        return max(
            (n for n, calls in own if any(c.done and _MEETS.match(c.shape.op) for c in calls)), default=0
        )

    def newest(self, rank: int) -> int | None:
        return max(self.calls.get(rank, ()), default=None)

    def numbers(self) -> Iterator[tuple[int, dict[int, list[RecordedCall]]]]:
        """Yield each number with the calls that ranks made under it."""
        for seq in sorted({seq for calls in self.calls.values() for seq in calls}):
            yield seq, {rank: calls[seq] for rank, calls in self.calls.items() if seq in calls}


@dataclass(slots=True)
class _Waits:
    """Ranks that wait in a collective, members that did not call it, and members without evidence."""

    group: _Group
    seq: int
    waiting: dict[int, RecordedCall]
    missing: list[int] = field(default_factory=list)
    unclear: list[int] = field(default_factory=list)

    @property
    def said(self) -> str:
        return f"{_said(list(self.waiting.values())[:1])}, number {self.seq} of {self.group.said}"

    @property
    def since(self) -> float:
        return min(call.created for call in self.waiting.values())


class FlightJudge:
    """Joint findings from the dumps of a job."""

    def __init__(self, dumps: Iterable[RankDump]) -> None:
        self.dumps = {dump.rank: dump for dump in dumps}
        self.gpus = dict(_gpus(self.dumps.values()))
        self.groups = _groups(self.dumps)
        self.waits = [one for one in map(self._wait, self.groups) if one is not None]

    def document(self, not_read: Sequence[str]) -> FlightDocument:
        """Return the document, with the verdict."""
        found = [*self._mismatches()]
        differ = {(one.group, one.desc) for one in found}
        faults = [*found, *self._deadlock(), *self._messages()]
        faults += [self._waited(w) for w in self.waits if (w.group.name, w.group.desc) not in differ]
        faults.sort(key=lambda one: (_ORDER.index(one.kind), self._inherits(one), one.since))
        no_dump = sorted({rank for group in self.groups for rank in self._without(group)})
        health, why = self._verdict(faults, no_dump, not_read)
        if odd := sorted({dump.format for dump in self.dumps.values()} - FORMATS):
            health, why = NodeHealth.UNKNOWN, f"format {first(odd)} is not known, so this may be wrong: {why}"
        return FlightDocument(
            "wirewatch.flight-recorder/1", time.time(), HEALTH_NAMES[health], why,
            [self._rank(dump) for _, dump in sorted(self.dumps.items())], no_dump, list(not_read),
            [
                FlightGroup(g.name, g.desc, [*g.members], g.known, {str(r): g.newest(r) for r in g.members})
                for g in self.groups
            ],
            faults, list(self._remarks()),
        )  # fmt: skip

    def named(self, ranks: Collection[int]) -> str:
        """Return ranks in a sentence, each with its known host and GPU."""
        said = []
        for rank in sorted(ranks)[:_MANY]:
            host, gpu = self.dumps[rank].host if rank in self.dumps else "", self.gpus.get(rank)
            place = host if gpu is None else f"{host}, GPU {gpu}"
            said.append(f"{rank} ({place})" if place else f"{rank}")
        more = len(ranks) - len(said)
        listed = ", ".join(said) + f" and {more} more" if more > 0 else words.either(said, "and")
        return f"rank{'' if len(ranks) == 1 else 's'} {listed}"

    def _without(self, group: _Group) -> list[int]:
        return [rank for rank in group.members if rank not in self.dumps]

    def _fault(
        self, kind: FaultKind, group: _Group, seq: int, ranks: Iterable[int], waiting: Iterable[int],
        since: float, text: str,
    ) -> FlightFault:  # fmt: skip
        named, waits = sorted(ranks), sorted(waiting)
        return FlightFault(kind, group.name, group.desc, seq, named, waits, self._without(group), since, text)

    def _wait(self, group: _Group) -> _Waits | None:
        """Return the first collective of a group in which ranks wait; later collectives wait for it.

        A collective that a rank has completed counts only if nothing else waits, since all ranks reached it.
        """
        found = None
        for seq, there in group.numbers():
            first_open = {rank: next((c for c in calls if c.waits), None) for rank, calls in there.items()}
            waiting = {rank: call for rank, call in first_open.items() if call is not None}
            if waiting:
                found = _Waits(group, seq, waiting)
                for rank in (rank for rank in group.members if rank in self.dumps):
                    newest, dump = group.newest(rank), self.dumps[rank]
                    if newest is None or newest < seq:
                        # Who ends before a call that others have completed left an older dump.
                        older = (newest or 0) < group.completed
                        unsure = dump.gaps or older or (newest is None and dump.lost)
                        (found.unclear if unsure else found.missing).append(rank)
                if found.missing or len(waiting) == len(there):
                    break
        return found

    def _mismatches(self) -> Iterator[FlightFault]:
        """Yield the first differing collective of each group; later differences follow from it."""
        for group in self.groups:
            for seq, there in group.numbers():
                if len(kinds := self._kinds(group, seq, there)) > 1:
                    yield self._mismatch(group, seq, there, kinds)
                    break

    def _kinds(self, group: _Group, seq: int, there: Mapping[int, Sequence[RecordedCall]]) -> list[list[int]]:
        """Group ranks by their calls, the largest group last, without ranks whose dump may lack a part.

        A field that a dump lacks fits any. A dump may end amid calls that share a number.
        """
        kinds: dict[_Parts, list[int]] = {}
        keys = {rank: tuple(_alike(call.shape) for call in calls) for rank, calls in there.items()}
        if len({*keys.values()}) == 1:
            return [[*keys]]
        most = max(map(len, keys.values()))
        for rank, key in sorted(
            keys.items(), key=lambda one: (-len(one[1]), sum(p.count(None) for p in one[1]))
        ):
            short, dump = len(key) < most, self.dumps[rank]
            if short and (dump.gaps or (dump.lost and seq == min(group.calls[rank]))):
                continue
            cut = short and seq == group.newest(rank)
            fits = [k for k in kinds if (cut or len(k) == len(key)) and all(map(_fit, k, key))]
            if key in kinds or len(fits) < 2:  # noqa: PLR2004
                kinds.setdefault(key if key in kinds or not fits else fits[0], []).append(rank)
        return sorted(kinds.values(), key=len)

    def _mismatch(
        self, group: _Group, seq: int, there: Mapping[int, Sequence[RecordedCall]], kinds: Sequence[list[int]]
    ) -> FlightFault:
        *others, most = kinds
        odd, size = sorted(rank for ranks in others for rank in ranks), len(group.members)
        sure, some = group.known and len(most) > size / 2, self._without(group) or not group.known
        said = [f"{self.named(of)} {_verb(of, 'call')} {_said(there[of[0]])}" for of in kinds]
        text = f"the ranks {'with dumps ' if some else ''}of {group.said} do not make the same call {seq}: "
        text += "; ".join(said[:_MANY])
        if not sure and len(most) == len(others[-1]):
            text += "; neither side is the larger one"
        else:
            why = f"more than half of its {size} ranks" if group.known else "most ranks, which no dump lists"
            text += "" if sure else f"; not known is the call of {why}: is it {self.named(odd)}?"
            text += _where(odd[0], there[odd[0]][0].where)
        waiting = (rank for rank, calls in there.items() if any(call.waits for call in calls))
        since = min(call.created for calls in there.values() for call in calls)
        return self._fault("mismatch", group, seq, odd if sure else (), waiting, since, text)

    def _waited(self, one: _Waits) -> FlightFault:
        """Return the fault of ranks that wait for a missing rank, or for nobody in the dumps."""
        no_dump, wait = self._without(one.group), _verb(one.waiting, "wait")
        if one.missing:
            text = f"{self.named(one.missing)} did not call {one.said}, in which "
            text += f"{self.named(one.waiting)} {wait}{_since(one.since)}"
            rank, last = one.missing[0], self.dumps[one.missing[0]].calls[-1:]
            if all(map(self._blocked, one.missing)):
                text += f"; rank {rank} itself waits in {self._blocked(rank)}"
            elif last and len(one.missing) == 1:
                text += _where(rank, last[0].where, "its last call was at ")
        else:
            text = f"{self.named(one.waiting)} {wait} in {one.said}{_since(one.since)}: "
            text += f"{'all of them' if no_dump or one.unclear else 'all ranks'} called it alike"
            late = any(call.late for call in one.waiting.values())
            text += (
                ", and its time-out passed" if late else "; the dumps do not show whether it stands or runs"
            )
        text += f"; {self.named(no_dump)} left no dump, which shows nothing" if no_dump else ""
        text += f"; the dump of {self.named(one.unclear)} no longer shows it" if one.unclear else ""
        kind: FaultKind = "missing" if one.missing else "standing"
        return self._fault(kind, one.group, one.seq, one.missing, one.waiting, one.since, text)

    def _blocked(self, rank: int) -> str:
        """Return the oldest collective in which a rank itself waits."""
        own = (call for call in self.dumps[rank].calls if call.waits and not call.p2p)
        oldest = min(own, key=lambda call: call.created, default=None)
        return "" if oldest is None else f"number {oldest.seq} of {_group_said(oldest.group, oldest.desc)}"

    def _inherits(self, fault: FlightFault) -> bool:
        return fault.kind == "missing" and all(map(self._blocked, fault.ranks))

    def _deadlock(self) -> Iterator[FlightFault]:
        """Yield rings of ranks that wait for each other."""
        edges: dict[int, dict[int, _Waits]] = defaultdict(dict)
        for one in self.waits:
            for rank in one.waiting:
                edges[rank] |= dict.fromkeys(one.missing, one)
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            ring = error.args[1][::-1]
            steps = [
                f"rank {rank} waits in {edges[rank][other].said}, for rank {other}"
                for rank, other in pairwise(ring)
            ]
            text = f"a deadlock of {self.named(ring[1:])}: {'; '.join(steps[:_MANY])}"
            wait = edges[ring[0]][ring[1]]
            yield self._fault("deadlock", wait.group, wait.seq, ring[1:], ring[1:], wait.since, text)

    def _pairs(self) -> Iterator[tuple[_Group, int, int, list[RecordedCall], list[RecordedCall]]]:
        """Yield each pair's sends and receives, in order, where both ranks of a group left a dump."""
        for group in self.groups:
            ends: dict[tuple[int, int], dict[str, list[RecordedCall]]] = {}
            for rank in (rank for rank in group.members if rank in self.dumps):
                for call in self.dumps[rank].calls:
                    if call.group == group.name and (found := _ends(call, group, rank)):
                        ends.setdefault(found[1:], {"send": [], "recv": []})[found[0]].append(call)
            yield from (
                (group, *pair, sides["send"], sides["recv"])
                for pair, sides in ends.items() if set(pair) <= self.dumps.keys()
            )  # fmt: skip

    def _messages(self) -> Iterator[FlightFault]:
        """Yield the first waiting message between two ranks whose other side is missing or differs.

        Sends and receives match by their order. Where a dump lacks calls, only two waiting calls match.
        """
        for group, source, target, *calls in self._pairs():
            lost = any(self.dumps[rank].gaps or self.dumps[rank].lost for rank in (source, target))
            sides = [[*dropwhile(lambda one: not one.waits, side)] for side in calls] if lost else calls
            waiting = [n for side in sides for n, call in enumerate(side) if call.waits]
            if not waiting or (lost and not all(sides)):
                continue
            sent, received = (dict(enumerate(side)).get(min(waiting)) for side in sides)
            since = min(one.created for one in (sent, received) if one and one.waits)
            if sent and received:
                there, here = _alike(sent.shape)[1:3], _alike(received.shape)[3:]
                text = (
                    f"rank {source} sends {_tensor(*there)} to rank {target}, which receives {_tensor(*here)}"
                )
                if not _fit(there, here):
                    yield self._fault("message", group, 0, (), (source, target), since, text)
            else:
                waits, other = (source, target) if sent else (target, source)
                text = f"{self.named([waits])} waits in a {'send to' if sent else 'receive from'} rank "
                text += f"{other} in {group.said}{_since(since)}, which did not call its side"
                yield self._fault("message", group, 0, [other], [waits], since, text)

    def _verdict(
        self, faults: Sequence[FlightFault], no_dump: Sequence[int], not_read: Sequence[str]
    ) -> tuple[NodeHealth, str]:
        if faults:
            late = any(call.late for one in self.waits for call in one.waiting.values())
            more = f" ({len(faults) - 1} more below)" if len(faults) > 1 else ""
            failed = faults[0].kind != "standing" or late
            return NodeHealth.FAILED if failed else NodeHealth.UNKNOWN, faults[0].text + more
        calls = [call for dump in self.dumps.values() for call in dump.calls]
        doubts = [f"{self.named(no_dump)} left no dump"] if no_dump else []
        doubts += not_read
        gaps = [rank for rank, dump in self.dumps.items() if dump.gaps]
        doubts += [f"the dump of {self.named(gaps)} lacks calls or fields"] if gaps else []
        doubts += [] if all(call.done for call in calls) else ["messages are on their way"]
        pairs = all(len(sent) == len(received) for *_, sent, received in self._pairs())
        doubts += [] if any(len(group.calls) > 1 for group in self.groups) else ["nothing can be compared"]
        same = pairs and not any(
            self._lacks(group, n, there) for group in self.groups for n, there in group.numbers()
        )
        doubts += [] if same else ["they do not have the same calls"]
        doubts += [] if all(g.known for g in self.groups) else ["they do not list the ranks of all groups"]
        if doubts:
            return NodeHealth.UNKNOWN, f"nobody waits for another in these dumps, but {doubts[0]}"
        of = f"all {count(len(calls), 'call')} of {count(len(self.dumps), 'rank')}"
        return NodeHealth.OK, f"nobody waits: {of} are complete and alike"

    def _lacks(self, group: _Group, seq: int, there: Collection[int]) -> bool:
        """Return whether a group's dump lacks a call that others have, for another reason than its age."""
        without = (rank for rank in group.members if rank in self.dumps and rank not in there)
        return any(not self.dumps[rank].lost or seq >= min(group.calls.get(rank, (0,))) for rank in without)

    def _rank(self, dump: RankDump) -> FlightRank:
        oldest = min((c for c in dump.calls if c.waits), key=lambda one: one.created, default=None)
        waits = (
            f"{_said([oldest])}, number {oldest.seq} of group {oldest.group}, {oldest.state}"
            if oldest
            else ""
        )
        shown = ([oldest] if oldest else dump.calls[-1:])[:1]
        return FlightRank(
            dump.rank, dump.host, self.gpus.get(dump.rank), dump.file, dump.format, dump.library,
            len(dump.calls), dump.lost, waits, shown[0].where if shown else "",
        )  # fmt: skip

    def _remarks(self) -> Iterator[str]:
        dumps = self.dumps.values()
        if lost := [dump.rank for dump in dumps if dump.lost]:
            yield f"the buffer of {self.named(lost)} was full: older calls are gone (TORCH_FR_BUFFER_SIZE)"
        if gaps := [dump.rank for dump in dumps if dump.gaps]:
            yield f"the dump of {self.named(gaps)} lacks calls or fields: what it lacks shows nothing"
        formats = sorted({dump.format for dump in dumps})
        if not set(formats) <= FORMATS:
            yield f"format {first(formats)}: known are 2.4 to 2.10, and what others mean may differ"
        elif len(formats) > 1:
            yield f"the dumps have different formats: {first(formats, _MANY)}"
        if unknown := [group.said for group in self.groups if not group.known]:
            yield f"the dumps do not list the ranks of {first(unknown)}: ranks without a dump cannot be seen"
        for group in self.groups:
            done = group.completed
            behind = [rank for rank in group.calls if (group.newest(rank) or 0) < done]
            if behind:
                ends = f"{self.named(behind)} {_verb(behind, 'end')} before number {done} of {group.said}"
                yield f"{ends}, which others have completed: an older dump"


_ORDER: Sequence[FaultKind] = ("mismatch", "deadlock", "missing", "message", "standing")


def _groups(dumps: Mapping[int, RankDump]) -> list[_Group]:
    """Return groups by name and ranks, since split groups may share a name."""
    found: dict[tuple[str, tuple[int, ...]], _Group] = {}
    listed = {
        rank: {
            name: found.setdefault((name, ranks), _Group(name, desc, ranks, known=True))
            for name, (desc, ranks) in dump.groups.items()
            if rank in ranks
        }
        for rank, dump in sorted(dumps.items())
    }
    for rank, own in listed.items():
        for call in dumps[rank].calls:
            group = own.get(call.group)
            if group is None:
                others = [g for g in found.values() if g.name == call.group and rank in g.members]
                made = _Group(call.group, call.desc, (), known=False)
                group = others[0] if len(others) == 1 else found.setdefault((call.group, ()), made)
                own[call.group] = group
            if not group.known and rank not in group.members:
                group.members = (*group.members, rank)
            if not call.p2p:
                group.calls.setdefault(rank, {}).setdefault(call.seq, []).append(call)
    return list(found.values())


def _gpus(dumps: Collection[RankDump]) -> Iterator[tuple[int, int]]:
    """Yield GPU numbers where hosts have equally many consecutive ranks, starting at multiples of that."""
    hosts: dict[str, list[int]] = defaultdict(list)
    for dump in dumps:
        hosts[dump.host].append(dump.rank)
    most = max(map(len, hosts.values()), default=0)
    rows = all(sorted(r) == list(range(min(r), min(r) + most)) and not min(r) % most for r in hosts.values())
    yield from ((dump.rank, dump.rank % most) for dump in dumps if rows and "" not in hosts)


def _ends(call: RecordedCall, group: _Group, rank: int) -> tuple[str, int, int] | None:
    """Return `send` or `recv` of a rank, and the source and target of its message, as ranks of the job."""
    found = _MESSAGE.fullmatch(call.shape.op)
    if found is None or max(int(found[2]), int(found[4])) >= len(group.members):
        return None
    own, peer = group.members[int(found[2])], group.members[int(found[4])]
    if own != rank or peer == rank or (found[1] == "send") != (found[3] == "->"):
        return None
    return ("send", own, peer) if found[1] == "send" else ("recv", peer, own)


def _alike(shape: CallShape) -> _Part:
    """Return all that must be equal on each rank, None for root-only, uneven or unknown parts."""
    op = shape.op or None
    if op is None or op.startswith(_UNEVEN) or op.endswith("coalesced"):
        return op, None, None, None, None
    ins = (None, None) if op == "scatter" else (shape.inputs, shape.input_types)
    outs = (None, None) if op == "gather" else (shape.outputs, shape.output_types)
    return op, *ins, *outs


def _fit(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def _group_said(name: str, desc: str) -> str:
    return f"group {name}" + (f" ({desc})" if desc not in {"", "undefined"} else "")


def _said(calls: Sequence[RecordedCall]) -> str:
    """Return calls in a sentence: `all_reduce of 1024 Float`."""
    shapes = [f"{one.shape.op} of {_tensor(one.shape.inputs, one.shape.input_types)}" for one in calls]
    return first(shapes, 2, " + ")


def _tensor(elements: Sequence[int] | None, types: Sequence[str] | None) -> str:
    size = "unknown" if elements is None else sum(elements)
    return f"{size} {'/'.join(dict.fromkeys(types or ())) or 'elements'}"


def _verb(ranks: Collection[int], verb: str) -> str:
    return f"{verb}s" if len(ranks) == 1 else verb


def _where(rank: int, where: str, before: str = "at ") -> str:
    return f"; rank {rank}: {before}{where}" if where else ""


def _since(at: float) -> str:
    return f" since {utc(at)}" if at else ""
