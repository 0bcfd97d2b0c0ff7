"""The elements that each rank sends and receives in a primitive: their number, places and values.

Counts and places equal those of nccl-tests (src/*.cu, GetCollByteCount and InitData). Where a message is
divided, each rank's share is rounded down to a multiple of 16 bytes. Where that leaves nothing, a share is
not rounded and has one element at least, so that the smallest messages are really sent.

Element i of rank r is 1 + (hash(i) + r) % modulus, an integer. No value is 0, so that every element of a sum
shows a missing rank. Every sum is exact in its type, and no sum has the bytes 0xFF of the poison.
"""

from dataclasses import dataclass

from wirewatch.core import probe
from wirewatch.core.probe import DTYPES, Case, Plan

ROOT = 0
"""The rank in its group that sends to all or receives from all, in primitives with a root."""
POISON = 0xFF
"""The byte that fills what is to be received: NaN, or an integer that is no value."""
ALIGNMENT = 16
"""Bytes of which a rank's share is a multiple."""
LARGEST = 254
"""The largest value: one byte that is not poison."""
_SEND_ALL = frozenset({probe.REDUCE_SCATTER, probe.SCATTER, probe.ALLTOALL})
"""A rank sends a share for each rank."""
_RECEIVE_ALL = frozenset({probe.ALL_GATHER, probe.GATHER, probe.ALLTOALL})
_EXACT = {"bfloat16": 1 << 8, "float16": 1 << 11, "int8": LARGEST, "uint8": LARGEST}
"""The largest exact sum of a type, which in 8 bits also differs from the poison. Others hold every sum."""


@dataclass(frozen=True, slots=True)
class Span:
    """A number of elements of a buffer, from a place in it."""

    at: int
    count: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """The received elements, in pieces of `each` elements.

    Element i is value `first + i // each * stride + i % each` of rank `rank + i // each`.
    """

    each: int
    first: int = 0
    stride: int = 0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Sums:
    """The received elements as sums: element i is the sum over all ranks of their value `first + i`."""

    first: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """One primitive on so many ranks.

    `count`: elements of the message, or of a rank's share of it. In place both buffers are one, and a rank's
    own share lies in its place among the others.
    """

    op: str
    ranks: int
    count: int
    in_place: bool

    def sends(self, place: int) -> bool:
        """Tell whether the rank at this place of the group sends."""
        if self.op == probe.SEND:
            return place < self.ranks // 2
        return self.op not in {probe.BROADCAST, probe.SCATTER} or place == ROOT

    def receives(self, place: int) -> bool:
        """Tell whether something arrives at the rank at this place of the group."""
        if self.op == probe.SEND:
            return not self.sends(place)
        return self.op not in {probe.REDUCE, probe.GATHER} or place == ROOT

    def sent(self, place: int) -> Span:
        """Where in its sending buffer lies what a rank sends."""
        own = self.in_place and self.op in {probe.ALL_GATHER, probe.GATHER}
        return Span(place * self.count if own else 0, self.count * self._shares(_SEND_ALL))

    def received(self, place: int) -> Span:
        """Where in its receiving buffer lies what a rank receives."""
        own = self.in_place and self.op in {probe.REDUCE_SCATTER, probe.SCATTER}
        return Span(place * self.count if own else 0, self.count * self._shares(_RECEIVE_ALL))

    def first(self, place: int) -> int:
        """The index of the first value that a rank sends."""
        return place * self.count if self.op in {probe.ALL_GATHER, probe.GATHER} else 0

    def poisoned(self, place: int) -> bool:
        """Tell whether anything of what a rank receives lies outside of what it sends."""
        inside = self.in_place and self.sends(place) and self.op not in _RECEIVE_ALL
        return self.receives(place) and not inside

    def expected(self, place: int) -> Pieces | Sums:
        """Return the elements that a receiving rank must have in the end."""
        each = self.count
        if self.op in _RECEIVE_ALL:
            return Pieces(each, place * each) if self.op == probe.ALLTOALL else Pieces(each, stride=each)
        if self.op == probe.SENDRECV:
            return Pieces(each, rank=(place - 1) % self.ranks)
        if self.op == probe.SEND:
            return Pieces(each, rank=place - self.ranks // 2)
        if self.op in {probe.BROADCAST, probe.SCATTER}:
            return Pieces(each, first=place * each if self.op == probe.SCATTER else 0, rank=ROOT)
        return Sums(place * each if self.op == probe.REDUCE_SCATTER else 0)

    def elements(self) -> tuple[int, int]:
        """Elements of the receiving buffer and, where it is another, of the sending buffer; of any rank."""
        sent, received = (self.count * self._shares(ops) for ops in (_SEND_ALL, _RECEIVE_ALL))
        return (max(sent, received), 0) if self.in_place else (received, sent)

    def _shares(self, ops: frozenset[str]) -> int:
        return self.ranks if self.op in ops else 1


def layout_of(plan: Plan, case: Case) -> Layout:
    """Return how a case of the plan lies in the buffers."""
    ranks, element = len(plan.groups[case.group]), DTYPES[plan.dtype]
    count = case.size_bytes // element
    if case.op in probe.DIVIDED:
        each = count // ranks
        count = each - each % (ALIGNMENT // element) or each
    return Layout(case.op, ranks, max(1, count), plan.in_place and case.op not in probe.OUT_OF_PLACE)


def modulus(dtype: str, ranks: int) -> int:
    """Return how many different values there are, so that no sum over the ranks leaves what is exact."""
    return max(1, min(LARGEST, _EXACT.get(dtype, 1 << 24) // ranks))


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of a GPU's buffers, the second 0 where none is needed; `largest`: what needs most, in words."""

    received: int
    sent: int
    largest: str

    def refusal(self) -> str:
        """Return why a GPU without so much memory cannot do it."""
        return f"no room for buffers of {self.received + self.sent} bytes; the largest is for {self.largest}"


def room(plan: Plan, micro_bytes: int) -> Room:
    """Return the memory that the plan needs on each GPU; `micro_bytes`: the need of its matrix product."""
    copied = max(plan.copy_bytes, plan.host_bytes)
    received, sent = max(2 * copied, micro_bytes if plan.micro else 0), 0
    largest = f"copies of {copied} bytes" if copied else "the matrix product"
    most, groups = received, range(len(plan.groups))
    timed = (case for group in groups for op in plan.ops for case in plan.cases_of(group, op))
    for case in (*timed, *plan.cases):
        both = [elements * DTYPES[plan.dtype] for elements in layout_of(plan, case).elements()]
        received, sent = max(received, both[0]), max(sent, both[1])
        if sum(both) > most:
            largest, most = f"{case.op} of {case.size_bytes} bytes", sum(both)
    return Room(_rounded(max(received, 1)), _rounded(sent), largest)


def _rounded(size: int) -> int:
    """Round up to a multiple of every element's size."""
    return -(-size // ALIGNMENT) * ALIGNMENT
