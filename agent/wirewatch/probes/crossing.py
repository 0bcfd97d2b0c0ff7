"""What crosses the socket between the agent and a prober: questions, orders and their answers.

One image, one version: the header names it, and a prober of another version answers with a refusal, so that
these values may change with the code and are no contract.
"""

from dataclasses import dataclass
from typing import ClassVar

from pydantic import TypeAdapter

from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent
from wirewatch.probes.comparability import ProbeTerms
from wirewatch.probes.gate import Facts, Refusal
from wirewatch.probes.prepare import Wanted

VERSION = "wirewatch-version"
"""The header."""
LOOK, PROBE, TERMS, RELEASE, RESUME = "/look", "/probe", "/terms", "/release", "/resume"
_STRICT: dict[str, object] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class LookOrder:
    """`engine` is a name or `auto`; `live`: whether the asker watches a machine, and not a recording."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    engine: str
    live: bool


@dataclass(frozen=True, slots=True)
class Looked:
    """What the prober sees: the engine that `auto` comes to there, and who uses the GPUs.

    Without `facts`, `refusal` says why; with them it is None, since the gate is the asker's to ask.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    engine: str | Absent
    facts: Facts | None
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Came:
    """What came of an order: what the prober's own gate saw last, and its refusal or the probe."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    facts: Facts
    refusal: Refusal | None
    probed: Probed | None


LOOK_ORDER = TypeAdapter(LookOrder)
LOOKED = TypeAdapter(Looked)
WANTED = TypeAdapter(Wanted)
CAME = TypeAdapter(Came)
PROBE_TERMS: TypeAdapter[ProbeTerms | Absent] = TypeAdapter(ProbeTerms | Absent)
