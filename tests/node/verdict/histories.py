"""Histories that hypothesis draws: what happens to a node, and what people do about it."""

from collections.abc import Sequence
from contextlib import suppress as ignored

from hypothesis import strategies as st

from tests.node.verdict.drawn import COLLECTORS, GONE, HUNG, D, Drawn, F, U, collector_of
from wirewatch.core.collector import blind_finding
from wirewatch.core.types import Finding, Health, Subject
from wirewatch.verdict.ledger import Stage
from wirewatch.verdict.orders import OrderError

Part = tuple[str, str, str]
"""UUID, device, link."""
MEASURED: Sequence[tuple[str, Part]] = (
    ("nvlink.link_down", ("GPU-a", "", "7")), ("pcie.width", ("GPU-b", "", "")),
    ("infiniband.port_slow", ("", "mlx5_0", "")), ("infiniband.port_down", ("", "mlx5_1", "")),
    ("probe.busbw", ("", "", "")), ("probe.wrong_data", ("", "", "")), ("gpudirect.missing", ("", "", "")),
    ("gpu.lost", ("GPU-b", "", "")), ("pcie.blind", ("GPU-a", "", "")),
)  # fmt: skip
EVENTS: Sequence[tuple[str, Part]] = (
    ("xid.79", ("GPU-a", "", "")), ("xid.79", ("GPU-b", "", "")), ("xid.149", ("GPU-a", "", "3")),
    ("sxid.20034", ("", "0000:07:00.0", "")),
)  # fmt: skip
Op = tuple[object, ...]
HEALTHS = st.sampled_from([D, U, F, F, F])
_MEASURED, _EVENTS = st.sampled_from(MEASURED), st.sampled_from(EVENTS)
_COLLECTORS = st.sampled_from(COLLECTORS)
_PAUSES = st.sampled_from([0.0, 5.0, 15.0, 15.0, 15.0, 60.0, 60.0, 700.0, 40_000.0])

LOOKS = st.tuples(st.just("look"), _PAUSES, st.integers(0, 6))
LITTLE = st.one_of(
    st.tuples(st.just("find"), _MEASURED, st.sampled_from([D, U])),
    st.tuples(st.just("event"), _EVENTS, st.just(D)),
    st.tuples(st.just("clear"), _MEASURED | _EVENTS),
)
LOSSES = st.one_of(
    st.tuples(st.sampled_from(["fail", "hang"]), _COLLECTORS),
    st.just(("back",)),
    st.tuples(st.just("mute"), st.sampled_from(["GPU-a", "GPU-b", "mlx5_0", "mlx5_1"])),
    st.just(("unmute",)),
)
FALLS = st.tuples(st.sampled_from(["fall", "fall", "rise"]), st.sampled_from(["GPU-a", "GPU-b"]))
DARK = st.tuples(
    st.just("dark"),
    st.sampled_from([("GPU-a",), ("GPU-b",), ("GPU-a", "GPU-b"), ("mlx5_0",), ("mlx5_0", "mlx5_1"), ()]),
    st.sampled_from(["restart", "reboot"]),
)
STARTS = st.sampled_from([("restart",), ("restart",), ("reboot",), ("renumber",)])
PROBED = st.tuples(st.just("probed"), st.booleans())
FAULTS = st.one_of(
    st.tuples(st.just("passing"), _MEASURED, st.integers(1, 8)),
    st.tuples(st.just("passing"), _MEASURED, st.integers(1, 8)),
    st.tuples(st.just("find"), _MEASURED, HEALTHS),
    st.tuples(st.just("event"), _EVENTS, st.sampled_from([D, F, F])),
    st.tuples(st.just("clear"), _MEASURED | _EVENTS),
)
WORDS = st.one_of(
    st.tuples(st.just("want"), st.sampled_from(["GPU-a", "GPU-b"])),
    st.just(("content",)),
    st.just(("content",)),
    st.tuples(st.just("end"), _EVENTS),
)
ORDERS = st.tuples(st.sampled_from(["repaired", "repaired", "suppress"]), st.integers(0, 5))


def histories(*kinds: st.SearchStrategy[Op], size: int = 12) -> st.SearchStrategy[list[Op]]:
    """Things that happen, each with some looks after it."""
    pairs = st.lists(st.tuples(st.one_of(*kinds), LOOKS), max_size=size)
    return pairs.map(lambda drawn: [op for pair in drawn for op in pair])


def part_of(node: Drawn, part: Part) -> Subject:
    uuid, device, link = part
    if uuid:
        return node.gpu(uuid, link=link)
    port = "1" if device.startswith("mlx5") else ""
    return Subject(device=device, port=port, link=link)


def play(node: Drawn, op: Op) -> None:
    """One thing happens; every look is a step of the ledger."""
    kind, *rest = op
    getattr(_Play(node), str(kind))(*rest)


class _Play:
    def __init__(self, node: Drawn) -> None:
        self.node = node

    def look(self, seconds: float, times: int) -> None:
        self.node.look(seconds, times)

    def find(self, what: tuple[str, Part], health: Health) -> None:
        rule, part = what
        place = part_of(self.node, part)
        self._forget(rule, place)
        if rule.endswith(".blind"):
            self.node.found[rule, place] = blind_finding(collector_of(rule), place, GONE)
        else:
            self.node.find(rule, place, health)

    def passing(self, what: tuple[str, Part], looks: int) -> None:
        """A fault that is there for a few looks, and then for some is not; a probe ends one of a probe."""
        self.find(what, F)
        self.node.look(times=2)
        self.clear(what)
        if what[0].startswith("probe."):
            self.node.probed()
        self.node.look(times=looks)

    def event(self, what: tuple[str, Part], health: Health) -> None:
        """One that was fatal is told as such until it ends."""
        rule, part = what
        place = part_of(self.node, part)
        before = self._forget(rule, place)
        worst = max(health, before.health if before else D)
        self.node.event(rule, place, worst)

    def _forget(self, rule: str, part: Subject) -> Finding | None:
        """What was told of it, by whatever index the GPU had."""
        known = [k for k in self.node.found if k[0] == rule and _name(k[1]) == _name(part)]
        return [self.node.found.pop(key) for key in known][-1] if known else None

    def end(self, what: tuple[str, Part]) -> None:
        rule, part = what
        place = part_of(self.node, part)
        if (rule, place) in self.node.found:
            self.node.end(rule, place)

    def clear(self, what: tuple[str, Part]) -> None:
        self._forget(what[0], part_of(self.node, what[1]))

    def fail(self, collector: str) -> None:
        self.node.down[collector] = HUNG

    def hang(self, collector: str) -> None:
        if self.node.state.components[collector].overdue_since is None:
            self.node.hang(collector)
            self.node.step()

    def back(self) -> None:
        self.node.down.clear()

    def mute(self, name: str) -> None:
        self.node.mute.add(name)

    def unmute(self) -> None:
        self.node.mute.clear()

    def dark(self, names: Sequence[str], start: str) -> None:
        """Parts are gone for a while after a start."""
        self.node.mute |= set(names)
        getattr(self, start)()
        self.node.look(times=6)

    def fall(self, uuid: str) -> None:
        if uuid in self.node.gpus:
            self.node.fall_off(uuid)

    def rise(self, uuid: str) -> None:
        if uuid not in self.node.gpus:
            self.node.come_back(uuid)

    def want(self, uuid: str) -> None:
        self.node.wants.add(uuid)

    def content(self) -> None:
        self.node.wants.clear()

    def restart(self) -> None:
        self.node.restart()

    def reboot(self) -> None:
        self.node.reboot(f"{self.node.boot}+")

    def renumber(self) -> None:
        """As after a boot: what is found is told by the new indexes."""
        node = self.node
        node.gpus.reverse()
        found = [(rule, part, one) for (rule, part), one in node.found.items()]
        node.found.clear()
        for rule, part, one in found:
            moved = part_of(node, (part.uuid, part.device, part.link)) if part.uuid else part
            node.found[rule, moved] = type(one)(
                one.rule, one.health, moved, one.evidence, one.action, one.since, one.last, one.stamp
            )

    def probed(self, clean: bool) -> None:  # noqa: FBT001 - drawn
        self.node.probed(clean=clean)

    def repaired(self, number: int) -> None:
        told = self.node.verdict.standings
        if told:
            finding = told[number % len(told)].finding
            with ignored(OrderError):
                self.node.repaired(finding.rule, finding.subject)

    def suppress(self, number: int) -> None:
        told = self.node.verdict.standings
        if told:
            finding = told[number % len(told)].finding
            self.node.suppress(finding.rule, finding.subject, seconds=3600.0)


def _name(part: Subject) -> tuple[str, ...]:
    return (part.uuid or part.gpu, part.device, part.port, part.link)


def played(history: Sequence[Op], **options: object) -> Drawn:
    """A node after its first look and a history.

    Occurrences and goings are not counted: one sight more between two of them makes them one.
    """
    node = Drawn(**{"flapping": (), **options})  # type: ignore[arg-type]
    node.look()
    for op in history:
        play(node, op)
    return node


def heal(node: Drawn) -> None:
    """All is well, and all is read."""
    node.gpus += [uuid for uuid in ("GPU-a", "GPU-b") if uuid not in node.gpus]
    node.found.clear()
    node.down.clear()
    node.mute.clear()
    node.wants.clear()


def held(node: Drawn) -> set[Stage]:
    return {entry.stage for entry in node.ledger.entries.values()}
