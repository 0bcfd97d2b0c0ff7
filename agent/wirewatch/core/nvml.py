"""NVML for collectors: many questions in one call, typed values from answers, names of numbers, processes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

from wirewatch.core.pci import normal_pci
from wirewatch.core.ports import Answer, Answers, Gpu, Nvml, Question, Sysfs
from wirewatch.core.types import Absent, Json, Why, value_or

NOT_ASKED = Absent(Why.UNSUPPORTED, "not supported when last asked")
LEFT_OUT = Answer(NOT_ASKED)
LINK_COUNT = Question("Field", (91,))
PROCESSES = (
    Question("ComputeRunningProcesses"),
    Question("MPSComputeRunningProcesses"),
    Question("GraphicsRunningProcesses"),
)
MIG_MODE = Question("MigMode")
BURST = Question("Burst", (250, 138, 139))
"""Milliseconds, and the fields of all links that are read again and again meanwhile: KiB sent, received."""
OLD_SPEEDS = (*range(84, 90), *range(132, 138))
"""Fields with the line rate of one link each, from before the field that takes a link; they are twelve."""
OLD_LINKS = 18
"""The number of links to ask for where a driver does not say how many a GPU has."""
MOST_GPUS, MOST_LINKS = 1024, 256
"""More GPUs than any node has, and more links than any GPU has: a larger count is an error of the driver."""
_MIG_ON = 1
"""NVML_DEVICE_MIG_ENABLE (nvml.h)."""
UP = frozenset({1, 2})
"""Active and asleep, as NVML numbers link states."""
Ask = Callable[[str | None, Sequence[Question]], Sequence[Answer]]
COUNT = Question("Count")
IDENTITY = (Question("UUID"), Question("PciInfo"), Question("Name"))
_REASONS = (
    "gpu_idle applications_clocks sw_power_cap hw_slowdown sync_boost sw_thermal_slowdown "
    "hw_thermal_slowdown hw_power_brake display_clocks board_limit reliability"
)
CLOCK_REASONS: Mapping[str, int] = {name: 1 << bit for bit, name in enumerate(_REASONS.split())}
FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
FABRIC_SUMMARIES = ("not_supported", "healthy", "unhealthy", "limited_capacity")
RECOVERY_ACTION = Question("Field", (230,))
RECOVERY_ACTIONS = (
    "none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset",
    "system_reboot",
)  # fmt: skip
NO_RECOVERY = RECOVERY_ACTIONS.index("none")
_TRUE_IS_BAD: Mapping[str, int] = {
    "degraded_bandwidth": 0, "route_recovery": 2, "route_unhealthy": 4, "access_timeout_recovery": 6,
}  # fmt: skip
_CONFIGURATIONS = {
    2: "incorrect_sysguid", 3: "incorrect_chassis", 4: "no_partition", 5: "insufficient_nvlinks",
    6: "incompatible_firmware", 7: "invalid_location", 8: "invalid_state",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Supported:
    """Facts of a GPU that hold for an NVML session: questions to `skip`, answers `kept` that do not change.

    `mig`: the GPU is split. A GPU that is whole again is asked everything again.
    """

    session: int = -1
    skip: frozenset[Question] = field(default_factory=frozenset)
    kept: Answers = field(default_factory=dict)
    mig: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """Answers to a set of questions; a question that was left out reads as unsupported."""

    answers: Answers
    supported: Supported

    def json(self, question: Question) -> Json | Absent:
        """The answer as it came."""
        return self.answers.get(question, LEFT_OUT).value

    def whole(self, question: Question) -> int | Absent:
        """The answer as a whole number."""
        return as_int(self.json(question))

    def number(self, question: Question) -> float | Absent:
        """The answer as a float, in the unit that NVML has for it."""
        return as_float(self.json(question))

    def text(self, question: Question) -> str | Absent:
        """The answer as text."""
        return as_str(self.json(question))


HARMLESS = frozenset(
    {
        "X", "Xorg", "Xwayland", "gnome-shell", "mutter", "kwin_wayland", "kwin_x11", "plasmashell", "weston",
        "sway", "cinnamon", "xfwm4",
    }
)  # fmt: skip
"""Display servers and desktops, by the name that the kernel has for them, which has at most 15 characters.

They hold a graphics context on every GPU that an X server drives, for as long as the machine is up.
"""
Pids = frozenset[int | None]
"""Ids of processes; None stands for a process without an id."""


def ask_gpu(
    nvml: Nvml, gpu: str, questions: tuple[Question, ...], known: Supported, once: tuple[Question, ...] = ()
) -> Asked | Absent:
    """Ask one GPU what it is known to support, or everything in a new session; `once` only once a session.

    Absent when nothing could be read (GPU lost, NVML hung): a fault of the GPU, not of its fields. With
    MIG_MODE among the questions, a change of it is a new session.
    """
    session = nvml.session()
    known = known if known.session == session else Supported(session)
    missing = () if len(known.kept) == len(once) else tuple(q for q in once if q not in known.kept)
    asked = _left(questions + missing, known.skip)
    answers = dict(zip(asked, nvml.ask(gpu, asked), strict=True))
    absent = {q: a.value for q, a in answers.items() if isinstance(a.value, Absent)}
    whole = whole_failure(list(absent.values())) if len(absent) == len(answers) else None
    if whole is not None:
        return whole
    mode = as_mig_mode(answers[MIG_MODE].value) if MIG_MODE in answers else None
    if isinstance(mode, MigMode) and mode.now != known.mig:
        return ask_gpu(nvml, gpu, questions, Supported(session, mig=mode.now), once)
    refused = frozenset(q for q, value in absent.items() if value.why is Why.UNSUPPORTED)
    kept = {q: answers[q] for q in missing if q in answers and q not in absent}
    if kept or not refused <= known.skip:
        known = Supported(session, known.skip | refused, {**known.kept, **kept}, known.mig)
    return Asked({**answers, **known.kept}, known)


def whole_failure(values: Sequence[Json | Absent]) -> Absent | None:
    """Return the first reason when nothing at all could be read, unsupported fields aside; else None."""
    bad = (v for v in values if isinstance(v, Absent) and v.why is not Why.UNSUPPORTED)
    return next(bad, None) if all(isinstance(v, Absent) for v in values) else None


def as_int(value: Json | Absent) -> int | Absent:
    """A whole number; MALFORMED for any other value, also for true and false."""
    if isinstance(value, Absent):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        return Absent(Why.MALFORMED, f"not a whole number: {value!r}")
    return value


def as_count(value: Json | Absent, most: int) -> int | Absent:
    """A whole number from 0 to `most`; MALFORMED for any other value."""
    number = as_int(value)
    if isinstance(number, Absent) or 0 <= number <= most:
        return number
    return Absent(Why.MALFORMED, f"not a number from 0 to {most}: {number}")


def as_float(value: Json | Absent) -> float | Absent:
    """A number; MALFORMED for any other value, also for true and false."""
    if isinstance(value, Absent):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Absent(Why.MALFORMED, f"not a number: {value!r}")
    return float(value)


def as_str(value: Json | Absent) -> str | Absent:
    """A text; MALFORMED for any other value."""
    if isinstance(value, Absent):
        return value
    return value if isinstance(value, str) else Absent(Why.MALFORMED, f"not a text: {value!r}")


def as_pids(value: Json | Absent) -> frozenset[int] | Absent:
    """Return the process ids of NVML's list of processes; MALFORMED where any of them is not a number."""
    found = _pids(value)
    if isinstance(found, Absent):
        return found
    odd = next((pid for pid in found if isinstance(pid, Absent)), None)
    return odd or frozenset(pid for pid in found if not isinstance(pid, Absent))


def as_process_memory(value: Json | Absent) -> Mapping[int, int]:
    """Return bytes of GPU memory by process id in NVML's list; processes without a figure are left out."""
    rows = value if isinstance(value, list | tuple) else ()
    found = ((as_int(member(row, "pid")), as_count(member(row, "usedGpuMemory"), 1 << 50)) for row in rows)
    return {
        pid: used for pid, used in found if not isinstance(pid, Absent) and not isinstance(used, Absent)
    }  # fmt: skip


def listed_processes(value: Json | Absent) -> Pids | Absent:
    """Return the processes of NVML's list; a process without an id is None."""
    found = _pids(value)
    return found if isinstance(found, Absent) else frozenset(value_or(pid, None) for pid in found)


def as_watts(milliwatts: float | Absent) -> float | Absent:
    """Return watts, as people read power."""
    return milliwatts if isinstance(milliwatts, Absent) else milliwatts / 1000


def as_ints(value: Json | Absent, length: int) -> Sequence[int] | Absent:
    """A list of exactly `length` whole numbers."""
    if isinstance(value, Absent):
        return value
    if isinstance(value, list | tuple) and len(value) == length:
        numbers = [n for n in map(as_int, value) if not isinstance(n, Absent)]
        if len(numbers) == length:
            return numbers
    return Absent(Why.MALFORMED, f"not {length} whole numbers: {value!r}")


@dataclass(frozen=True, slots=True)
class MigMode:
    """Whether a GPU is split by MIG: now, and after its next reset."""

    now: bool
    later: bool


def as_mig_mode(value: Json | Absent) -> MigMode | Absent:
    """The answer to MIG_MODE; a GPU that does not know MIG is whole."""
    if isinstance(value, Absent) and value.why is Why.UNSUPPORTED:
        return MigMode(now=False, later=False)
    modes = as_ints(value, 2)
    return modes if isinstance(modes, Absent) else MigMode(*(mode == _MIG_ON for mode in modes))


def member(value: Json | Absent, name: str) -> Json | Absent:
    """A member of a structured answer; MALFORMED where it has no member of this name."""
    if isinstance(value, Absent):
        return value
    if isinstance(value, Mapping) and name in value:
        return value[name]
    return Absent(Why.MALFORMED, f"no member {name!r}: {value!r}")


def count_links(nvml: Nvml, gpu: str) -> int:
    """Return the number of a GPU's links, up or down; OLD_LINKS where its driver does not say."""
    count = as_count(nvml.ask(gpu, [LINK_COUNT])[0].value, MOST_LINKS)
    return OLD_LINKS if isinstance(count, Absent) else count


@cache
def state(link: int) -> Question:
    """The question for the state of a link, as NVML numbers it."""
    return Question("Field", (165, link))


@cache
def old_state(link: int) -> Question:
    """The question for the state of a link, for drivers without that field."""
    return Question("NvLinkState", (link,))


@cache
def old_speed(link: int) -> Question | None:
    """The question for the line rate of a link, for drivers without that field; None beyond the last."""
    return Question("Field", (OLD_SPEEDS[link],)) if link < len(OLD_SPEEDS) else None


@cache
def link_speed(link: int) -> Question:
    """The question for the line rate of a link, in MB/s each way."""
    return Question("Field", (164, link))


def gpu_processes(nvml: Nvml, gpu: Gpu) -> tuple[frozenset[int | None], frozenset[int | None]] | Absent:
    """Return the ids of processes that compute on a GPU, and of processes that draw; None: without an id."""
    answers = [answer.value for answer in nvml.ask(gpu.key, PROCESSES)]
    # Old drivers do not list the clients of MPS, and some GPUs cannot draw.
    found: list[frozenset[int | None]] = []
    for number, listed in enumerate(answers):
        lacks = isinstance(listed, Absent) and listed.why in {Why.UNSUPPORTED, Why.MISSING}
        pids = _pids(() if number and lacks else listed)
        if isinstance(pids, Absent):
            return pids
        found.append(frozenset(value_or(pid, None) for pid in pids))
    own, shared, drawing = found
    return own | shared, drawing


def count_gpus(ask: Ask) -> int | Absent:
    """Return the number of GPUs that NVML enumerates."""
    return as_count(ask(None, [COUNT])[0].value, MOST_GPUS)


def identify(ask: Ask, index: int, known: Gpu | None) -> Gpu:
    """Return the GPU at an index; `known`, last seen there, fills gaps if it is the same GPU."""
    uuid, pci, name = (a.value for a in ask(f"index:{index}", IDENTITY))
    found = as_str(uuid)
    last = known or Gpu(index, "")
    if isinstance(found, Absent):
        return Gpu(index, last.uuid, last.pci, last.name, found)
    same = last if last.uuid == found else Gpu(index, found)
    return Gpu(index, found, normal_pci(_text(member(pci, "busId"))) or same.pci, _text(name) or same.name)


def ber(raw: int) -> float:
    """Bit error rate from its packing: exponent in bits 0-7, mantissa in bits 8-11.

    Mantissa 15 with exponent 255 is the "nothing measured" sentinel and 0 means zero: both give 0.0.
    """
    mantissa, exponent = raw >> 8 & 0xF, raw & 0xFF
    return 0.0 if (mantissa, exponent) == (15, 255) else mantissa * 10.0**-exponent


def fabric_troubles(mask: int) -> tuple[str, ...]:
    """The troubles that a fabric health mask shows, by name.

    In the four yes/no fields 0 is "not supported", 1 is bad, 2 is good; in the configuration field 1 is
    good. So a mask of zero is "not supported", and a healthy mask is not zero.
    """
    bad = [name for name, shift in _TRUE_IS_BAD.items() if mask >> shift & 0x3 == 1]
    configuration = mask >> 8 & 0xF
    if configuration > 1:
        bad.append(_CONFIGURATIONS.get(configuration, f"configuration_{configuration}"))
    return tuple(bad)


def foreign_processes(nvml: Nvml, sysfs: Sysfs, gpu: Gpu) -> Pids | Absent:
    """Return processes that compute or draw on a GPU, except display servers that only draw."""
    listed = gpu_processes(nvml, gpu)
    if isinstance(listed, Absent):
        return listed
    computing, drawing = listed
    return computing | {
        pid for pid in drawing if pid is None or sysfs.read(f"/proc/{pid}/comm") not in HARMLESS
    }


def _pids(listed: Json | Absent) -> Sequence[int | Absent] | Absent:
    if isinstance(listed, list | tuple):
        return [as_int(member(entry, "pid")) for entry in listed]
    return (
        listed
        if isinstance(listed, Absent)
        else Absent(Why.MALFORMED, f"not a list of processes: {listed!r}")
    )


@lru_cache(maxsize=256)
def _left(questions: tuple[Question, ...], skip: frozenset[Question]) -> tuple[Question, ...]:
    return tuple(q for q in questions if q not in skip)


def _text(value: Json | Absent) -> str:
    return value_or(as_str(value), "")
