"""May a probe run now, and if not, why not. Pure: what was read goes in, a decision comes out.

What cannot be read counts as busy. The reasons are label values of probe_skips_total.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from wirewatch.core.holdings import Holding
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent

PROHIBITED = 2
"""NVML's compute mode in which no process may compute."""


class Reason(Enum):
    """Why no probe runs; `value` is the label, the docstring of each is in METRICS."""

    BUSY = "busy"
    ALLOCATED = "allocated"
    SETTLING = "settling"
    MEMORY = "memory"
    BLIND = "blind"
    BUDGET = "budget"
    LOCKED = "locked"
    MIG = "mig"
    FEW_GPUS = "few_gpus"
    NO_ENGINE = "no_engine"
    PROHIBITED = "prohibited"
    PROBER_AWAY = "prober_away"


MEANING: Mapping[Reason, str] = {
    Reason.BUSY: "a process computes on a GPU",
    Reason.ALLOCATED: "the kubelet or Slurm has given a GPU to somebody",
    Reason.SETTLING: "that became idle only a short while ago",
    Reason.MEMORY: "memory of a GPU is held by nobody we can see, or too little is free",
    Reason.BLIND: "who uses the GPUs could not be read",
    Reason.BUDGET: "the GPU-seconds that probes may hold are used up",
    Reason.LOCKED: "another probe, or an operator, holds the lock",
    Reason.MIG: "a GPU is in MIG mode, where NCCL has no wires to use",
    Reason.FEW_GPUS: "there are not two GPUs to send anything",
    Reason.NO_ENGINE: "neither nccl4py with cuda.core nor torch with CUDA is installed",
    Reason.PROHIBITED: "a GPU's compute mode lets no process compute",
    Reason.PROBER_AWAY: "the prober, a process of its own here, does not answer or did not take the order",
}


@dataclass(frozen=True, slots=True)
class Use:
    """How a GPU is used: processes by id (None: not told), bytes of memory; Absent what could not be read."""

    gpu: Gpu
    processes: frozenset[int | None] | Absent
    used: int | Absent
    free: int | Absent
    mig: bool | Absent
    compute_mode: int | Absent


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the gate looks at; `slurm` None: not asked this time, since all else said no."""

    uses: tuple[Use, ...]
    pods: tuple[Holding, ...] | Absent
    slurm: tuple[Holding, ...] | Absent | None
    mono: float


@dataclass(frozen=True, slots=True)
class Stillness:
    """Since when (monotonic seconds) each GPU's users have been the same, by its key.

    Slurm is left out: it is asked too seldom, and its jobs are processes.
    """

    users: Mapping[str, object] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the gate asks for.

    `settle`: seconds for which nothing may have changed. `unseen`: bytes in use that nobody owns up to;
    `free`: bytes that a probe needs on each GPU.
    """

    settle: float
    unseen: int
    free: int


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: Reason
    detail: str


def watch_users(known: Stillness, facts: Facts) -> Stillness:
    """Move the stillness forward by what is seen now; what cannot be read is a change."""
    users: dict[str, object] = {}
    since: dict[str, float] = {}
    for use in facts.uses:
        key = use.gpu.key
        now = (use.processes, _holders((facts.pods,), key), use.mig)
        readable = not isinstance(use.processes, Absent) and not isinstance(facts.pods, Absent)
        same = readable and known.users.get(key) == now
        users[key] = now
        since[key] = known.since[key] if same else facts.mono
    return Stillness(users, since)


def _holders(told: Sequence[tuple[Holding, ...] | Absent | None], key: str) -> frozenset[str]:
    known = [holdings for holdings in told if holdings is not None and not isinstance(holdings, Absent)]
    return frozenset(h.holder for holdings in known for h in holdings if key in h.gpus)


def candidates(facts: Facts, owner: str | None) -> tuple[Gpu, ...]:
    """The GPUs that a probe would touch: the owner's where one asks and holds some, else all."""
    everyone = tuple(use.gpu for use in facts.uses)
    return everyone if owner is None else _held_by(facts, owner) or everyone


def _held_by(facts: Facts, owner: str) -> tuple[Gpu, ...]:
    told = (facts.pods, facts.slurm)
    return tuple(use.gpu for use in facts.uses if owner in _holders(told, use.gpu.key))


def refuse(facts: Facts, still: Stillness, rules: Rules, owner: str | None = None) -> Refusal | None:
    """The first reason why these GPUs may not be probed, the lasting ones before those that pass."""
    touched = {gpu.key for gpu in candidates(facts, owner)}
    uses = [use for use in facts.uses if use.gpu.key in touched]
    if len(uses) < 2:  # noqa: PLR2004
        return Refusal(Reason.FEW_GPUS, f"{len(uses)} GPU")
    for check in (_modes, _processes, _memory):
        found = check(uses, rules)
        if found is not None:
            return found
    found = _allocated(facts, touched, owner)
    if found is None and owner is not None and not _held_by(facts, owner):
        return Refusal(Reason.BLIND, f"{owner} holds no GPU here, by the word of the kubelet and of Slurm")
    return found or _settling(facts, still, touched, rules)


def _modes(uses: Sequence[Use], _rules: Rules) -> Refusal | None:
    for use in uses:
        unread = next((v for v in (use.gpu.absent, use.mig, use.compute_mode) if isinstance(v, Absent)), None)
        if unread is not None:
            return Refusal(Reason.BLIND, f"GPU {use.gpu.index}: {unread}")
        if use.mig:
            return Refusal(Reason.MIG, f"GPU {use.gpu.index} is in MIG mode")
        if use.compute_mode == PROHIBITED:
            return Refusal(Reason.PROHIBITED, f"GPU {use.gpu.index}: compute mode Prohibited")
    return None


def _processes(uses: Sequence[Use], _rules: Rules) -> Refusal | None:
    for use in uses:
        if isinstance(use.processes, Absent):
            return Refusal(Reason.BLIND, f"processes on GPU {use.gpu.index}: {use.processes}")
        if use.processes:
            pids = ", ".join("unknown" if p is None else str(p) for p in sorted(use.processes, key=str))
            return Refusal(Reason.BUSY, f"GPU {use.gpu.index} is used by process {pids}")
    return None


def _memory(uses: Sequence[Use], rules: Rules) -> Refusal | None:
    for use in uses:
        if isinstance(use.free, Absent) or isinstance(use.used, Absent):
            unread = use.free if isinstance(use.free, Absent) else use.used
            return Refusal(Reason.BLIND, f"memory of GPU {use.gpu.index}: {unread}")
        if use.used > rules.unseen:
            return Refusal(
                Reason.MEMORY, f"GPU {use.gpu.index}: {use.used} bytes are in use by nobody who can be seen"
            )
        if use.free < rules.free:
            return Refusal(
                Reason.MEMORY, f"GPU {use.gpu.index}: {use.free} bytes are free, {rules.free} are needed"
            )
    return None


def _allocated(facts: Facts, touched: set[str], owner: str | None) -> Refusal | None:
    for name, told in (("the kubelet", facts.pods), ("Slurm", facts.slurm)):
        if isinstance(told, Absent):
            return Refusal(Reason.BLIND, f"{name} does not tell who holds GPUs: {told}")
        for holding in told or ():
            if holding.holder != owner and touched & set(holding.gpus):
                return Refusal(Reason.ALLOCATED, f"{holding.holder} holds GPUs: {holding.about}")
    return None


def _settling(facts: Facts, still: Stillness, touched: set[str], rules: Rules) -> Refusal | None:
    waited = min(facts.mono - still.since.get(key, facts.mono) for key in touched)
    if waited < rules.settle:
        return Refusal(Reason.SETTLING, f"unchanged for {waited:.0f} of {rules.settle:.0f} s")
    return None
