"""One window of one job: which of its GPUs never waits, or why that cannot be told. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wirewatch.collectors.lockstep.policy import LockstepPolicy
from wirewatch.collectors.lockstep.values import Reason, Window
from wirewatch.core.robust import high_median, low_median

Windows = Mapping[str, Window]
"""By GPU (`Gpu.key`), two at least."""
MB = 1e6


@dataclass(frozen=True, slots=True)
class Seen:
    """What a window says; `text` the numbers that it turned on, of `gpu` where it is about one.

    `gaps`: how much busier each GPU's SMs were than those of the others; empty unless they can be compared.
    """

    reason: Reason
    gpu: str = ""
    text: str = ""
    gaps: Mapping[str, float] = field(default_factory=dict)


def compare(
    windows: Windows, clocks: Mapping[str, float], references: Mapping[str, float], policy: LockstepPolicy
) -> Seen:
    """Judge one window.

    `clocks` are of each GPU in Hz, those that are known; `references` what `gaps` was for each GPU in the
    first windows of the job, empty when that is not known.
    """
    for doubt in (_unlike_windows, _no_lockstep, _host):
        if seen := doubt(windows, policy):
            return seen
    return _uneven(windows, clocks, policy) or _busiest(windows, references, policy)


def others(values: Mapping[str, float], key: str) -> list[float]:
    return [value for other, value in values.items() if other != key]


def _unlike_windows(windows: Windows, policy: LockstepPolicy) -> Seen | None:
    seconds = [w.seconds for w in windows.values()]
    low, high = min(seconds), max(seconds)
    if policy.shortest <= low and high <= policy.longest and high - low <= policy.together:
        return None
    return Seen(Reason.WINDOW, text=f"windows of {low:.1f} to {high:.1f} s")


def _no_lockstep(windows: Windows, policy: LockstepPolicy) -> Seen | None:
    for name, bytes_ in (
        ("received", [w.received for w in windows.values()]),
        ("sent", [w.sent for w in windows.values()]),
    ):
        low, high = min(bytes_), max(bytes_)
        if low < policy.least_bytes or high - low > policy.same_bytes * high:
            return Seen(Reason.NO_LOCKSTEP, text=f"{low / MB:.0f} to {high / MB:.0f} MB/s {name} over NVLink")
    return None


def _host(windows: Windows, policy: LockstepPolicy) -> Seen | None:
    shares = {key: w.graphics for key, w in windows.items()}
    idlest = min(shares, key=lambda key: shares[key])
    if max(shares.values()) - shares[idlest] <= policy.same_time:
        return None
    text = f"something runs there {shares[idlest]:.0%} of the time, elsewhere {max(shares.values()):.0%}"
    return Seen(Reason.HOST, idlest, text)


def _uneven(windows: Windows, clocks: Mapping[str, float], policy: LockstepPolicy) -> Seen | None:
    for name, amounts, tolerance in _work(windows, clocks, policy):
        if len(amounts) < len(windows):
            return Seen(Reason.UNREAD, text=f"{name} cannot be compared without every clock")
        for key, amount in amounts.items():
            usual = low_median(others(amounts, key))
            if abs(amount - usual) > tolerance * usual:
                part = f"{amount / usual - 1:+.0%} against" if usual else "more than none on"
                return Seen(Reason.UNEVEN, key, f"{name} is {part} the others")
    return None


def _work(
    windows: Windows, clocks: Mapping[str, float], policy: LockstepPolicy
) -> Iterator[tuple[str, dict[str, float], float]]:
    """How much of each kind of work every GPU did, and how far it may be from that of the others."""
    yield "use of memory", {key: w.dram for key, w in windows.items()}, policy.same_memory
    for unit in sorted({unit for w in windows.values() for unit in w.math}):
        shares = {key: w.math.get(unit, 0.0) for key, w in windows.items()}
        if max(shares.values()) > policy.math_from:
            # A share of cycles: a GPU with a lower clock is busy for longer with the same work.
            done = {key: share * clocks[key] for key, share in shares.items() if key in clocks}
            yield f"{unit} work", done, policy.same_math


def _busiest(windows: Windows, references: Mapping[str, float], policy: LockstepPolicy) -> Seen:
    busy = {key: w.sm for key, w in windows.items()}
    usual = {key: high_median(others(busy, key)) for key in busy}
    gaps = {key: busy[key] / usual[key] - 1 if usual[key] > 0 else 0.0 for key in busy}
    first = max(gaps, key=lambda key: gaps[key])
    rest = others(busy, first)
    if max(rest) - min(rest) > policy.same_others * max(rest):
        return Seen(Reason.SCATTERED, text=f"their SMs are busy {min(rest):.1%} to {max(rest):.1%}")
    gap, before = gaps[first], references.get(first)
    text = f"SM busy {busy[first]:.1%} against {usual[first]:.1%}"
    shifted = before is not None and gap >= policy.least_gap and gap - before >= policy.shift
    return Seen(Reason.NAMED if gap >= policy.gap or shifted else Reason.NOBODY, first, text, gaps)
