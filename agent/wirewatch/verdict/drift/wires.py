"""NVLink: links that went, came, or go elsewhere, and islands that broke up or grew together.

A wire between two GPUs is one change, though both see it. What a lost, new or replaced GPU explains is not
told again; an island that broke up is told instead of the wires that went between its pieces.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.topology import UNKNOWN_PEER
from wirewatch.verdict.drift.change import Change, Kind
from wirewatch.verdict.drift.graph import GpuNode, Graph
from wirewatch.verdict.drift.matching import Matched
from wirewatch.verdict.drift.words import links, numbers, part_name, peer_name

Bundle = frozenset[str]
"""Keys of the GPUs at both ends; of one where the other end is the switch or not known."""
Ends = Mapping[str, tuple[int, ...]]
"""Links of each end."""


@dataclass(frozen=True, slots=True)
class Side:
    """One graph in the keys of the graph after: peer by link, by GPU. `alone`: GPUs that only it has."""

    peers: Mapping[str, Mapping[int, str]]
    islands: tuple[tuple[str, ...], ...]
    alone: frozenset[str]

    def bundles(self, other: "Side") -> Mapping[Bundle, Ends]:
        """Links that are up here and not in the other one."""
        found: dict[Bundle, dict[str, tuple[int, ...]]] = {}
        for key, peers in self.peers.items():
            for link in sorted(peers.keys() - other.peers[key].keys()):
                if peers[link] not in self.alone:
                    ends = found.setdefault(frozenset({key, peers[link]} & self.peers.keys()), {})
                    ends[key] = (*ends.get(key, ()), link)
        return found

    def up(self, key: str) -> tuple[int, ...]:
        """Links of a GPU but for those to GPUs that the other graph does not have."""
        return tuple(sorted(link for link, peer in self.peers[key].items() if peer not in self.alone))


@dataclass(frozen=True, slots=True)
class Turn:
    """Which way: what went, or what came; `here` is the side that has it."""

    kind: Kind
    word: str
    island: str
    here: Side
    there: Side

    @property
    def worse(self) -> bool:
        return self.kind is Kind.NVLINK_LOST

    def order(self, here: str, there: str) -> tuple[str, str]:
        """Before and after."""
        return (here, there) if self.worse else (there, here)


def wire_changes(before: Graph, after: Graph, gpus: Matched[GpuNode]) -> Iterator[Change]:
    """All changes of NVLink among GPUs whose wires were read both times."""
    pairs = [(one, other) for one, other in gpus.pairs if _comparable(one, other)]
    keys = {one.key: other.key for one, other in gpus.pairs}
    now = {other.key: other for _, other in pairs}
    then = _side(before, {other.key: one for one, other in pairs}, keys)
    today = _side(after, now, {other.key: other.key for _, other in gpus.pairs})
    moved = _elsewhere(then, today)
    for key, groups in moved.items():
        for (old, new), which in groups.items():
            old_name, new_name = peer_name(old, (*after.gpus, *before.gpus)), peer_name(new, after.gpus)
            text = f"{part_name(now[key])}: NVLink {links(which)} {'goes' if len(which) == 1 else 'go'}"
            told = f"{text} to {new_name} instead of {old_name}"
            was, is_now = (f"{numbers(which)} to {peer}" for peer in (old, new))
            yield Change(Kind.NVLINK_PEER, key, was, is_now, told, worse=True)
    for turn in (
        Turn(Kind.NVLINK_LOST, "down", "broke up into", then, today),
        Turn(Kind.NVLINK_NEW, "came up", "grew together from", today, then),
    ):
        yield from _turned(turn, now, frozenset(moved))


def _comparable(before: GpuNode, after: GpuNode) -> bool:
    """Another product has other links."""
    same_product = before.uuid == after.uuid or before.product == after.product
    return before.read and after.read and bool(after.key) and same_product


def _side(graph: Graph, nodes: Mapping[str, GpuNode], keys: Mapping[str, str]) -> Side:
    return Side(
        {key: {n: keys.get(peer, peer) for n, peer in gpu.peers().items()} for key, gpu in nodes.items()},
        tuple(tuple(keys[key] for key in one.gpus if key in keys) for one in graph.islands),
        frozenset(gpu.key for gpu in graph.gpus if gpu.key not in keys),
    )


def _elsewhere(then: Side, today: Side) -> Mapping[str, Mapping[tuple[str, str], tuple[int, ...]]]:
    """Links by old and new peer, by GPU. From a lost GPU to a new one is no news."""
    found: dict[str, dict[tuple[str, str], tuple[int, ...]]] = {}
    for key, peers in then.peers.items():
        for link in sorted(peers.keys() & today.peers[key].keys()):
            ends = (peers[link], today.peers[key][link])
            explained = ends[0] in then.alone and ends[1] in today.alone
            if ends[0] != ends[1] and UNKNOWN_PEER not in ends and not explained:
                of_gpu = found.setdefault(key, {})
                of_gpu[ends] = (*of_gpu.get(ends, ()), link)
    return found


def _turned(turn: Turn, now: Mapping[str, GpuNode], moved: Collection[str]) -> Iterator[Change]:
    bundles = dict(turn.here.bundles(turn.there))
    for island in turn.here.islands:
        pieces = _pieces(island, turn, moved)
        crossing = [bundle for bundle in bundles if _crosses(bundle, pieces)]
        if crossing:
            wires = sum(max(len(which) for which in bundles.pop(bundle).values()) for bundle in crossing)
            yield _island_change(pieces, wires, turn, now)
    for ends in bundles.values():
        yield _link_change(ends, turn, now)


def _pieces(island: Sequence[str], turn: Turn, moved: Collection[str]) -> list[tuple[str, ...]]:
    """How the other graph divides an island; not at all while part of it is not known or goes elsewhere."""
    sure = all(
        key in turn.here.peers
        and key not in moved
        and UNKNOWN_PEER not in {*turn.here.peers[key].values(), *turn.there.peers[key].values()}
        for key in island
    )
    if not sure:
        return [tuple(island)]
    parts = (tuple(sorted(set(island) & set(other))) for other in turn.there.islands)
    return sorted(part for part in parts if part)


def _crosses(bundle: Bundle, pieces: Iterable[Collection[str]]) -> bool:
    pieces = list(pieces)
    inside = bundle <= {key for piece in pieces for key in piece}
    return inside and not any(bundle <= set(piece) for piece in pieces)


def _island_change(
    pieces: Sequence[Sequence[str]], wires: int, turn: Turn, now: Mapping[str, GpuNode]
) -> Change:
    named = (
        ", ".join(part_name(gpu) for gpu in sorted((now[key] for key in piece), key=lambda gpu: gpu.index))
        for piece in sorted(pieces, key=lambda piece: min(now[key].index for key in piece))
    )
    text = f"NVLink island {turn.island} {' | '.join(named)}: {wires} link{'s' * (wires > 1)} {turn.word}"
    whole = " ".join(sorted(key for piece in pieces for key in piece))
    before, after = turn.order(whole, " | ".join(" ".join(piece) for piece in pieces))
    return Change(Kind.ISLAND, min(whole.split()), before, after, text, turn.worse)


def _link_change(ends: Ends, turn: Turn, now: Mapping[str, GpuNode]) -> Change:
    """One bundle of wires, told from the end with the lower key."""
    first, *others = sorted(ends)
    counts = turn.order(str(len(turn.here.up(first))), str(len(turn.there.up(first))))
    text = f"{part_name(now[first])}: NVLink {' -> '.join(counts)} links up, {links(ends[first])} {turn.word}"
    far = "".join(f" (with {links(ends[key])} of {part_name(now[key])})" for key in others)
    told = "; ".join(f"{key}: {numbers(ends[key])}" for key in sorted(ends))
    before, after = turn.order(told, "")
    return Change(turn.kind, first, before, after, text + far, turn.worse)
