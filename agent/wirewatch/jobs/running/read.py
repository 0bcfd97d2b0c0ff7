"""Read the rings of running jobs, and once for each process its owner and its settings of NCCL."""

from wirewatch.core.jobs import Ring, RingReading, RingsReading, RingState
from wirewatch.core.nvml import PROCESSES, as_pids
from wirewatch.core.owners import process_owner
from wirewatch.core.ports import Hardware, Nvml, Sysfs
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, Why, value_or
from wirewatch.jobs.running.model import MOST_RINGS, JobsMemory, JobsOptions, JobsReading, RingProcess
from wirewatch.nccl.settings import parse_nccl_conf, settings_of_environ

CONF = "/etc/nccl.conf"
_NO_PID = Absent(Why.MISSING, "its process cannot be seen from here")


def read(hardware: Hardware, memory: JobsMemory, options: JobsOptions) -> JobsReading | Absent:
    """The rings with what is new in each; where there is no folder of rings there is nothing to watch."""
    polled = hardware.rings.poll({name: ring.last for name, ring in memory.rings.items()})
    if isinstance(polled, Absent):
        return JobsReading(polled) if polled.why is Why.MISSING else polled
    followed = RingsReading(_first(polled.rings), polled.refused)
    processes = {one.ring.name: _process(hardware.sysfs, memory, one.ring) for one in followed.rings}
    conf = parse_nccl_conf(value_or(hardware.sysfs.read(CONF), "")).settings
    return JobsReading(followed, processes, conf, names=options.names)


def computing(nvml: Nvml) -> tuple[dict[int, str], frozenset[str]]:
    """Return the GPU (UUID) of each process that computes on one alone, by NVML, and all GPUs there are."""
    gpus = value_or(nvml.gpus(), ())
    pids = ((gpu.uuid, as_pids(nvml.ask(gpu.key, PROCESSES[:1])[0].value)) for gpu in gpus)
    held = grouped((pid, uuid) for uuid, found in pids for pid in value_or(found, ()))
    return {pid: on[0] for pid, on in held.items() if len(on) == 1}, frozenset(gpu.uuid for gpu in gpus)


def _first(rings: tuple[RingReading, ...]) -> tuple[RingReading, ...]:
    """Return the followed rings, up to the limit: live rings first, then the newest."""
    order = sorted(rings, key=lambda one: (one.ring.state is not RingState.LIVE, -one.ring.created))
    return tuple(order[:MOST_RINGS])


def _process(sysfs: Sysfs, memory: JobsMemory, ring: Ring) -> RingProcess:
    """The process behind a ring, read once; again where it was not to be seen, as when its ring was new."""
    known = memory.processes.get(ring.name)
    if known is not None and known.settings != _NO_PID:
        return known
    if isinstance(ring.host_pid, Absent):
        return RingProcess(ring.owner, _NO_PID)
    owner = ring.owner or process_owner(sysfs, ring.host_pid)
    environ = sysfs.data(f"/proc/{ring.host_pid}/environ")
    settings = environ if isinstance(environ, Absent) else settings_of_environ(environ)
    return RingProcess(owner, settings)
