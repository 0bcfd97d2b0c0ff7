"""The part of a recorded probe that was asked for, and what was asked for and is not in it. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from wirewatch.core.probe import Plan, Probed, Timed
from wirewatch.core.words import size as human
from wirewatch.probe.variation import Variation


def only_asked(
    probed: Probed, ops: Sequence[str], sizes: Sequence[int], variation: Variation
) -> tuple[Probed | None, tuple[str, ...]]:
    """The probe with no more than the collectives and sizes (bytes) asked for; none given: all that it has.

    Returns:
        None where it holds nothing of that, and in words what it does not hold.
    """
    if probed.document is None:
        return probed, ()
    missing = variation.missing_in(probed.plan)
    if missing:
        return None, missing
    held = probed.document.collectives
    of_op = [one for one in held if not ops or one.op in ops]
    named = [one for one in of_op if not sizes or one.size_bytes in sizes]
    runs = variation.iterations
    kept = tuple(one for one in named if runs is None or _runs(probed.plan, one) == runs)
    missing = _missing(held, ops, sizes)
    if len(kept) < len(named):
        others = sorted({_runs(probed.plan, one) for one in named} - {runs})
        missing += (f"{runs} timed runs (it has {', '.join(map(str, others))})",)
    if held and not kept:
        return None, missing
    return (probed if len(kept) == len(held) else _without_others(probed, kept)), missing


def _runs(plan: Plan, timed: Timed) -> int:
    """How many timed runs a measurement was to have."""
    for case in plan.cases:
        if (case.group, case.op, case.size_bytes, case.launch) == _key(timed):
            return case.iterations
    return dict(plan.bandwidth).get(timed.size_bytes, plan.latency_iterations)


def _key(timed: Timed) -> tuple[int, str, int, str]:
    return timed.group, timed.op, timed.size_bytes, timed.launch


def _missing(held: Sequence[Timed], ops: Sequence[str], sizes: Sequence[int]) -> tuple[str, ...]:
    has_ops, has_sizes = {one.op for one in held}, {one.size_bytes for one in held}
    both = {(one.op, one.size_bytes) for one in held}
    return (
        *(f"op {op}" for op in ops if op not in has_ops),
        *(f"size {human(size)}" for size in sizes if size not in has_sizes),
        *(
            f"{op} of {human(size)}"
            for op in ops or sorted(has_ops)
            for size in sizes
            if op in has_ops and size in has_sizes and (op, size) not in both
        ),
    )


def _without_others(probed: Probed, kept: tuple[Timed, ...]) -> Probed:
    """What was counted while a collective ran is of all its sizes: with one left out it says nothing."""
    assert probed.document is not None  # noqa: S101 - the caller has looked
    plan, held = probed.plan, probed.document.collectives
    ops, sizes, keys = {one.op for one in kept}, {one.size_bytes for one in kept}, set(map(_key, kept))
    partly = {f"{one.op}.{one.group}" for one in held if one not in kept}
    return replace(
        probed,
        plan=replace(
            plan,
            ops=tuple(op for op in plan.ops if op in ops),
            latency_sizes=tuple(size for size in plan.latency_sizes if size in sizes),
            bandwidth=tuple((size, runs) for size, runs in plan.bandwidth if size in sizes),
            cases=tuple(c for c in plan.cases if (c.group, c.op, c.size_bytes, c.launch) in keys),
        ),
        document=replace(probed.document, collectives=kept),
        parts=tuple(part for part in probed.parts if part.name not in partly),
    )
