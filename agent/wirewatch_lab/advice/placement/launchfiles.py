"""A placement as input of launchers: Slurm's --nodelist and host file, Open MPI's rankfile, devices. Pure.

Ranks of serving replicas count replica by replica, stage by stage. Ranks of a training job follow
Megatron-LM's default order: tensor ranks, then replicas, then stages (tp-cp-ep-dp-pp).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wirewatch.core.hostlist import compact
from wirewatch_lab.advice.placement.jobs import PlacedGpu, PlacedJob, Replica
from wirewatch_lab.advice.shell import ranges


class LaunchError(Exception):
    """The file cannot be written for this placement; the text is one line for people."""


@dataclass(frozen=True, slots=True)
class Rank:
    """A process with its GPU.

    `visible`: GPUs of its node that its replica uses, which the process may see. A training job's ranks see
    the GPUs of all its replicas there.
    """

    rank: int
    gpu: PlacedGpu
    job: int
    replica: int
    stage: int
    visible: tuple[int, ...]


def ranks(placed: Sequence[PlacedJob], *, training: bool) -> tuple[Rank, ...]:
    """Return all ranks, job by job, in their order."""
    found: list[Rank] = []
    for number, job in enumerate(placed):
        slots = [(r, s) for r, replica in enumerate(job.replicas) for s in range(len(replica.stages))]
        if training:
            slots.sort(key=lambda slot: slot[::-1])
        together = _visible(job.replicas) if training else {}
        visible = [together or _visible([one]) for one in job.replicas]
        for replica, stage in slots:
            for gpu in job.replicas[replica].stages[stage].gpus:
                seen = visible[replica][gpu.node.name]
                found.append(Rank(len(found), gpu, number, replica, stage, seen))
    return tuple(found)


def nodelist(placed: Sequence[PlacedJob]) -> str:
    """Return the nodes for `srun --nodelist` or `sbatch --nodelist`, each once, in Slurm's short form."""
    stages = (stage for job in placed for replica in job.replicas for stage in replica.stages)
    return compact(gpu.node.name for stage in stages for gpu in stage.gpus)


def hostfile(of: Sequence[Rank]) -> Iterator[str]:
    """Yield a host name for each rank, for SLURM_HOSTFILE of `srun --distribution=arbitrary`.

    Open MPI's `--map-by seq` reads the same list.
    """
    return (one.gpu.node.name for one in of)


def rankfile(of: Sequence[Rank]) -> Iterator[str]:
    """Yield Open MPI's rankfile, with ranks bound to cores. Raises LaunchError: too few cores are known."""
    for one in of:
        node = one.gpu.node
        each = node.cores // node.wiring.gpus
        if each < 1:
            some = f"{node.name} has {node.cores} cores for {node.wiring.gpus} GPUs"
            have = some if node.cores else "none are"
            raise LaunchError(
                f"a rankfile binds each rank to cores of its own, and {have} known: give `cores` in the file "
                "of nodes, or take --print hostfile for mpirun --map-by seq"
            )
        first = one.gpu.index * each
        yield f"rank {one.rank}={node.name} slot={ranges(range(first, first + each))}"


def devices(of: Sequence[Rank]) -> Iterator[str]:
    """Yield a line for each rank: number, host, GPU index, CUDA_VISIBLE_DEVICES, and place in that list."""
    yield "# rank host gpu CUDA_VISIBLE_DEVICES local_device job replica stage"
    for one in of:
        seen = ",".join(map(str, one.visible))
        where = f"{one.gpu.node.name} {one.gpu.index} {seen} {one.visible.index(one.gpu.index)}"
        yield f"{one.rank} {where} {one.job} {one.replica} {one.stage}"


def _visible(replicas: Sequence[Replica]) -> dict[str, tuple[int, ...]]:
    """Return the GPUs of the replicas, by node."""
    used: dict[str, set[int]] = {}
    for one in replicas:
        for stage in one.stages:
            for gpu in stage.gpus:
                used.setdefault(gpu.node.name, set()).add(gpu.index)
    return {name: tuple(sorted(seen)) for name, seen in used.items()}
