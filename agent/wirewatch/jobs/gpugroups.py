"""Group GPUs into jobs by their processes, and name these jobs. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping

NAMED = frozenset({"slurm", "pod", "container"})
"""Kinds of owners that name a job."""


def is_named(owner: str) -> bool:
    """Return whether an owner such as `slurm:ID` names a job."""
    return owner.partition(":")[0] in NAMED


def job_name(pids: Collection[int], owners: Mapping[int, str]) -> str:
    """Return the name of a job: the single owner of its processes if it has a name, else `pid:N`."""
    names = {owners.get(pid, "") for pid in pids}
    name = names.pop() if len(names) == 1 else ""
    return name if is_named(name) else f"pid:{min(pids)}"


def gpu_groups(
    pids: Mapping[str, Collection[int]], owners: Mapping[int, str],
    hanging: Iterable[Collection[str]] = (), in_step: Collection[str] = (),
) -> tuple[tuple[str, ...], ...]:  # fmt: skip
    """Return the GPUs of each job: of one owner or process, or in one hang or lockstep; largest first.

    `pids` by GPU. `in_step`: GPUs that run in lockstep; of several owners with names they are several jobs.
    """
    groups: list[Collection[str]] = [*hanging]
    stepping = {owners.get(pid, "") for uuid in in_step for pid in pids.get(uuid, ())}
    if sum(map(is_named, stepping)) < 2:  # noqa: PLR2004
        groups.append(in_step)
    shared: dict[str, set[str]] = {}
    for uuid, some in pids.items():
        for pid in some:
            shared.setdefault(owners.get(pid) or f"pid:{pid}", set()).add(uuid)
    every = [set(one) for one in (*groups, *shared.values())]
    return tuple(sorted(_joined(pids, every), key=len, reverse=True))


def _joined(pids: Mapping[str, Collection[int]], groups: Collection[set[str]]) -> Iterator[tuple[str, ...]]:
    left = {uuid for uuid, some in pids.items() if some}
    for first in pids:
        if first not in left:
            continue
        job = {first}
        while more := {uuid for one in groups if one & job for uuid in one & left} - job:
            job |= more
        left -= job
        yield tuple(uuid for uuid in pids if uuid in job)
