"""What of a result concerns one node, for its own agent. Pure."""

from collections.abc import Iterable

from wirewatch.core.pairs import PartKind
from wirewatch.verdict.pairs import MOST_PARTNERS, MOST_PARTS, PairsLoss, PairsPart, PairsResult
from wirewatch_fleet.pairs.document import MemberEntry, PairsDocument, SlowEntry


def member_of(found: PairsDocument, names: Iterable[str]) -> MemberEntry | None:
    """The member that the first of these names stands for, or is a node of; None where none took part."""
    for name in names:
        for one in found.members:
            if name and (name == one.name or name in one.nodes):
                return one
    return None


def result_for(found: PairsDocument, member: MemberEntry) -> PairsResult | str:
    """What its agent is told of a member; or why there is nothing to tell, in words.

    A member that is named is always told. Silence about one says that it is well only where it was measured
    enough, and nothing that is still open concerns it.
    """
    parts = [_part(one, found.at) for one in found.named if _concerns(one, member)]
    open_ = _undecided(found, member)
    if open_ and not parts:
        return open_
    return PairsResult(
        found.at, member.name, max(len(member.nodes), 1), not open_, tuple(parts[:MOST_PARTS]),
        tuple((one.measure, one.across) for one in found.typical), tuple(member.partners[:MOST_PARTNERS]),
    )  # fmt: skip


def concerned(found: PairsDocument) -> list[str]:
    """The nodes that something named concerns, those of a clique one by one; in the order of the members."""
    members = (one for one in found.members if any(_concerns(part, one) for part in found.named))
    return [name for one in members for name in (one.nodes or [one.name])]


def _concerns(part: SlowEntry, member: MemberEntry) -> bool:
    return part.kind is not PartKind.RAIL and member.name in part.members


def _undecided(found: PairsDocument, member: MemberEntry) -> str:
    """Why nothing is said of a member that is not named, in words; empty where it is known to be well."""
    if not member.answered:
        return f"{member.name} gave no answer in {member.runs} runs"
    if member.name in (*found.thin, *found.silent):
        return f"{member.name} has too few runs to be judged"
    if any(_concerns(one, member) for one in found.suspects):
        return f"{member.name} is open: slow so far, but not beyond chance"
    return ""


def _part(one: SlowEntry, at: float) -> PairsPart:
    losses = tuple(PairsLoss(x.way, x.loss, x.low, x.high, x.slow, x.runs, x.partners) for x in one.losses)
    return PairsPart(one.kind, one.name, one.peer, one.rail, one.across, one.measure, losses, at)
