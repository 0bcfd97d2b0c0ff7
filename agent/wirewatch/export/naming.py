"""Who is slow by one probe, as documents have it."""

from wirewatch.core.probe import Probed
from wirewatch.export.probedocuments import Straggler
from wirewatch.verdict.straggler.naming import Named, Slow, Uniform
from wirewatch.verdict.straggler.signals import Unit


def stragglers(named: Named, probed: Probed) -> list[Straggler]:
    """The slowest first, then what is slow on the whole node."""
    places = {gpu.uuid: gpu.index for gpu in probed.gpus}
    slow = sorted(named.slow, key=lambda one: -one.lost)
    return [*(_part(one, places) for one in slow), *map(_whole, named.uniform)]


def _part(one: Slow, places: dict[str, int]) -> Straggler:
    return Straggler(
        resource=one.unit.resource.value, gpu=places.get(one.unit.uuid), uuid=one.unit.uuid,
        peer=places.get(one.unit.peer), lost=one.lost, score=one.loss.score,
        against="own" if one.own else "peers", rate=one.rate, own=one.usual, peers=one.peers,
        probes=one.probes, follows=[_text(unit, places) for unit in one.follows],
    )  # fmt: skip


def _whole(one: Uniform) -> Straggler:
    return Straggler(
        resource=one.resource.value, gpu=None, uuid="", peer=None, lost=one.lost, score=None, against="own",
        rate=None, own=None, peers=None, probes=0, follows=[],
    )  # fmt: skip


def _text(unit: Unit, places: dict[str, int]) -> str:
    to = f" to {places.get(unit.peer, unit.peer)}" if unit.peer else ""
    return f"{unit.resource.value} of GPU {places.get(unit.uuid, unit.uuid)}{to}"
