"""Reading what the gate decides on: who uses the GPUs, and who was given them."""

from collections.abc import Callable, Sequence

from wirewatch.core.holdings import Holding, Names, job_holdings, pod_holdings, read_minors
from wirewatch.core.nvml import as_int, as_ints, compute_processes, member
from wirewatch.core.podlife import read_podlife
from wirewatch.core.ports import Gpu, Hardware, Nvml, Question
from wirewatch.core.types import Absent, Json, Why
from wirewatch.probes.gate import Facts, Use

MEMORY = Question("MemoryInfo")
MODES = (Question("MigMode"), Question("ComputeMode"))
NOBODY = frozenset({Why.MISSING})
"""Where there is no kubelet and no Slurm, they have given nothing away; who cannot be asked may have."""


def read_facts(hardware: Hardware, gpus: Sequence[Gpu], *, slurm: bool) -> Facts:
    """What the gate looks at; Slurm's controller is asked only with `slurm`."""
    names = Names(read_minors(hardware.nvml, gpus))
    return Facts(
        uses=tuple(_use(hardware.nvml, gpu) for gpu in gpus),
        pods=_pods(hardware, gpus, names),
        slurm=_jobs(hardware, gpus, names) if slurm else None,
        mono=hardware.clock.mono(),
    )


def nobody(hardware: Hardware) -> Facts:
    """Of no GPU at all."""
    return Facts((), (), None, hardware.clock.mono())


def _use(nvml: Nvml, gpu: Gpu) -> Use:
    if gpu.absent is not None:
        return Use(gpu, gpu.absent, gpu.absent, gpu.absent, gpu.absent, gpu.absent)
    memory, mig, mode = (a.value for a in nvml.ask(gpu.key, (MEMORY, *MODES)))
    return Use(
        gpu=gpu,
        processes=compute_processes(nvml, gpu),
        used=as_int(member(memory, "used")),
        free=as_int(member(memory, "free")),
        mig=_mig(mig),
        compute_mode=_mode(mode),
    )


def _mig(mode: Json | Absent) -> bool | Absent:
    """Whether MIG is on; a GPU that does not know MIG has it off."""
    if isinstance(mode, Absent):
        return False if mode.why is Why.UNSUPPORTED else mode
    now_and_next = as_ints(mode, 2)
    return now_and_next if isinstance(now_and_next, Absent) else now_and_next[0] == 1


def _mode(mode: Json | Absent) -> int | Absent:
    """The compute mode; a GPU that does not know such modes lets everybody compute."""
    unknown = isinstance(mode, Absent) and mode.why is Why.UNSUPPORTED
    return 0 if unknown else as_int(mode)


def _pods(hardware: Hardware, gpus: Sequence[Gpu], names: Names) -> tuple[Holding, ...] | Absent:
    pods = hardware.kubelet.pods()
    if isinstance(pods, Absent):
        return () if pods.why in NOBODY else pods
    if not pods:
        return ()
    return pod_holdings(pods, gpus, read_podlife(hardware.sysfs), names)


def _jobs(hardware: Hardware, gpus: Sequence[Gpu], names: Names) -> tuple[Holding, ...] | Absent:
    jobs = hardware.slurm.jobs()
    if isinstance(jobs, Absent):
        return () if jobs.why in NOBODY else jobs
    return job_holdings(jobs, gpus, names)


def new_allocations(hardware: Hardware, gpus: Sequence[Gpu], known: Facts) -> Callable[[], str | None]:
    """A function that tells whom the kubelet has given one of `gpus` since `known` was read of all GPUs."""
    everyone, touched = [use.gpu for use in known.uses], {gpu.key for gpu in gpus}
    names = Names(read_minors(hardware.nvml, everyone))
    before = frozenset() if isinstance(known.pods, Absent) else frozenset(h.holder for h in known.pods)

    def look() -> str | None:
        pods = _pods(hardware, everyone, names)
        if isinstance(pods, Absent):
            return f"the kubelet no longer tells who holds GPUs: {pods}"
        new = [h for h in pods if h.holder not in before and touched & set(h.gpus)]
        return f"{new[0].holder} was given GPUs: {new[0].about}" if new else None

    return look
