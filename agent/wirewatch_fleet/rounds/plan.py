"""The measurements requested from two nodes of a pair: `wirewatch.fleet-pair-plan/1`."""

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le
from pydantic import TypeAdapter, ValidationError

from wirewatch.core.probe import MIB
from wirewatch_fleet.pairs.document import RoundsWork
from wirewatch_fleet.pairs.model import Name, StrictPart

_PLACE = re.compile(r"([^\s:]+|\[[0-9a-fA-F:.%]+\]):([0-9]{1,5})", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
PORTS = range(1, 1 << 16)
LONGEST_SECONDS, MOST_BYTES = 3600, 16 << 30
"""Most seconds of a pair's measurement, and most bytes of a message."""
Seconds = Annotated[float, Gt(0), Le(LONGEST_SECONDS)]
WorkEngine = Literal["distributed", "gloo"]
"""torch.distributed over NCCL on GPUs, or over gloo on processors."""
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""Variables that choose the interface of sockets: NCCL's, and the interface over which processes meet."""


class PlanError(Exception):
    """The text is not the plan of a pair; one line for the user."""


@dataclass(frozen=True, slots=True)
class PairWork(StrictPart):
    """What each pair measures: the same for all of a fleet, or their rates could not be compared.

    `ranks`: GPUs of each node, one process and one rail each; processes for gloo. Each rank sends
    `size_bytes` at a time, `iterations` timed after `warmup` others. `seconds`: after which what still runs
    is killed; `patience`: for which each waits for the other. `environment`: variables of the workers, such
    as NCCL's settings.
    """

    engine: WorkEngine = "distributed"
    ranks: Annotated[int, Ge(1), Le(64)] = 8
    size_bytes: Annotated[int, Ge(16), Le(MOST_BYTES)] = 256 * MIB
    iterations: Annotated[int, Ge(1), Le(10_000)] = 8
    warmup: Annotated[int, Ge(1), Le(100)] = 2
    seconds: Seconds = 20.0
    patience: Seconds = 10.0
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """Return the GPUs held on each node."""
        return 0 if self.engine == "gloo" else self.ranks


@dataclass(frozen=True, slots=True)
class PairPlan(StrictPart):
    """The plan of one pair. At `meet` (HOST:PORT) the node `first` listens, for `second` to come."""

    schema: Literal["wirewatch.fleet-pair-plan/1"]
    first: Name
    second: Name
    meet: str
    work: PairWork

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port of `meet`."""
        host, _, port = self.meet.rpartition(":")
        return host.strip("[]"), int(port)


PLAN = TypeAdapter(PairPlan)
INPUTS: dict[str, TypeAdapter[Any]] = {"wirewatch.fleet-pair-plan.1": PLAN}


def pair_plan(first: str, second: str, meet: str, work: PairWork) -> PairPlan:
    """Return the plan of a pair that meets at HOST:PORT."""
    return PairPlan("wirewatch.fleet-pair-plan/1", first, second, meet, work)


def encode_pair_plan(plan: PairPlan) -> str:
    """Return the plan as a line of JSON."""
    return json.dumps(asdict(plan), allow_nan=False)


def decode_pair_plan(text: str) -> PairPlan:
    """Return the plan in a text.

    Raises:
        PlanError: it is not a plan, or cannot be followed.
    """
    try:
        plan = PLAN.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the text"
        raise PlanError(f"not a plan (wirewatch.fleet-pair-plan/1): {place}: {first['msg']}") from error
    wrong = _wrong(plan)
    if wrong:
        raise PlanError(f"not a plan that can be followed: {wrong}")
    return plan


def wrong_work(work: PairWork) -> str:
    """Return why the work makes no sense, in words; empty when it does."""
    if work.size_bytes % 16:
        return f"{work.size_bytes} bytes are not a multiple of 16"
    if work.size_bytes > MOST_BYTES:
        most, asked = MOST_BYTES >> 30, work.size_bytes >> 30
        return f"{asked} GiB are more than the {most} GiB that a pair may send at a time"
    if work.seconds > LONGEST_SECONDS:
        return f"{work.seconds:g} s are more than the {LONGEST_SECONDS:g} s that a pair may take"
    if work.patience >= work.seconds:
        return f"one that waits {work.patience:g} s for the other cannot end in {work.seconds:g} s"
    odd = next((name for name in work.environment if not _VARIABLE.fullmatch(name)), None)
    return "" if odd is None else f"{odd!r} is not the name of a variable"


def measured_work(work: PairWork) -> RoundsWork:
    """Return the parts of the work that decide the rates."""
    return RoundsWork(work.engine, work.ranks, work.size_bytes, dict(work.environment))


def _wrong(plan: PairPlan) -> str:
    place = _PLACE.fullmatch(plan.meet)
    if plan.first == plan.second:
        return f"{plan.first} is both nodes of it"
    if place is None or int(place[2]) not in PORTS:
        return f"meet: {plan.meet!r} is not HOST:PORT"
    return wrong_work(plan.work)
