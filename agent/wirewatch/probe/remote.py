"""The client of the prober, another process with the privileges that this process lacks; their protocol.

A prober that fails costs one probe, with the reason in words. It is never a fault of the hardware.
"""

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from pydantic import TypeAdapter, ValidationError

from wirewatch import __version__
from wirewatch.client import NoAnswer, request
from wirewatch.core.ports import Clock, Gpu, Hardware
from wirewatch.core.probe import PROBED_SCHEMA, Plan, Probed, ProbedGpu, wrong_in_probed
from wirewatch.core.types import Absent, Expect, Why
from wirewatch.probe.gate import GateFacts, Refusal, SkipReason
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.setup import ProbeRequest, ProbeTerms, read_terms

log = logging.getLogger(__name__)
T = TypeVar("T")
SERVER = "the prober"
OK = 200
FACTS_SECONDS = 35.0
"""Seconds for the facts of the gate: NVML may take 30 to start."""
RESUME_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class LostOrder:
    """The prober took an order and did not answer with a probe; `seconds` since the order."""

    why: str
    seconds: float


@dataclass(frozen=True, slots=True)
class HandleRelease:
    """Release of the prober's GPU handles: unkillable processes, and why it is not known, if it is not."""

    stuck: tuple[int, ...] = ()
    unsure: str = ""


VERSION = "wirewatch-version"
"""The header with the version."""
FACTS, PROBE, TERMS, RELEASE, RESUME = "/look", "/probe", "/terms", "/release", "/resume"
_STRICT: dict[str, object] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class FactsRequest:
    """`engine` is a name or `auto`; `live`: whether the asker watches a machine, and not a recording."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    engine: str
    live: bool


@dataclass(frozen=True, slots=True)
class FactsAnswer:
    """The prober's view: its engine for `auto`, and the users of the GPUs.

    Without `facts`, `refusal` says why; with them it is None, since the asker decides at its own gate.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    engine: str | Absent
    facts: GateFacts | None
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The answer to an order: the last facts of the prober's own gate, and its refusal or the probe."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    facts: GateFacts
    refusal: Refusal | None
    probed: Probed | None


class RemoteProber:
    """The prober at a socket; `live` is whether this process watches a machine, and not a recording."""

    def __init__(self, path: str, clock: Clock, *, live: bool) -> None:
        self._path = path
        self._clock = clock
        self._live = live
        self._withheld = ""
        self._away = ""
        self._releasing: threading.Thread | None = None
        self._released = HandleRelease()

    def facts(self, engine: str, until: float) -> FactsAnswer | Refusal:
        """Return the users of the GPUs by the prober; `until` in monotonic seconds."""
        body = FACTS_REQUEST.dump_json(FactsRequest(engine, self._live))
        looked = self._ask(FACTS, body, FACTS_ANSWER, min(until, self._clock.mono() + FACTS_SECONDS))
        if isinstance(looked, LostOrder):
            looked = Refusal(SkipReason.PROBER_AWAY, looked.why)
        why = looked.detail if isinstance(looked, Refusal) else ""
        if why and not self._away:
            log.warning("no probe can run, the prober is away: %s", why)
        elif self._away and not why:
            log.info("the prober answers again")
        self._away = why
        return looked

    def run(self, wanted: ProbeRequest, until: float) -> ProbeAnswer | Refusal | LostOrder:
        """Run a probe if the prober's own gate is open; waits for the answer `until`, monotonic seconds."""
        body = PROBE_REQUEST.dump_json(replace(wanted, live=self._live))
        came = self._ask(PROBE, body, PROBE_ANSWER, until)
        if isinstance(came, ProbeAnswer) and came.probed and (wrong := wrong_in_probed(came.probed)):
            why = f"{self._path}: what it measured does not fit together: {wrong}"
            return LostOrder(why, came.probed.held_seconds)
        return came

    def terms(
        self, options: ProbeOptions, expect: Expect, within: float = FACTS_SECONDS
    ) -> ProbeTerms | Absent:
        """Return the terms of the probe that it would run now, if the gate were open; `within` seconds."""
        body = PROBE_REQUEST.dump_json(ProbeRequest(options, "daemon", expect.nvlink_links))
        terms = self._ask(TERMS, body, PROBE_TERMS, self._clock.mono() + within)
        if isinstance(terms, Refusal | LostOrder):
            return Absent(Why.LOST, terms.detail if isinstance(terms, Refusal) else terms.why)
        return terms

    def give_way(self, why: str, seconds: float, within: float) -> None:
        """Have every GPU handle closed there for a number of seconds, and ask nothing until `resume`.

        It does not wait; `left` waits, for up to `within` seconds from now.
        """
        self._withheld = why
        body = json.dumps({"seconds": seconds, "by": "the agent"}).encode()

        def ask() -> None:
            self._released = self._closed(body, within)

        self._released = HandleRelease(unsure=f"{self._path}: no answer within {within:g} s")
        self._releasing = threading.Thread(target=ask, name="prober-release", daemon=True)
        self._releasing.start()

    def left(self, within: float) -> HandleRelease:
        """Return the result of `give_way`, waiting for at most this number of seconds."""
        if self._releasing is not None:
            self._releasing.join(within)
        return self._released

    def resume(self) -> None:
        """Let it be asked again and hold GPUs. A prober that does not answer comes back by itself in time."""
        self._withheld = ""
        try:
            request(self._path, "POST", RESUME, b'{"by": "the agent"}', RESUME_SECONDS, SERVER)
        except NoAnswer as error:
            log.warning("the prober has not heard that the release is over: %s", error)

    def _closed(self, body: bytes, within: float) -> HandleRelease:
        try:
            status, answer = request(self._path, "POST", RELEASE, body, within, SERVER)
            if status == OK:
                return HandleRelease(tuple(int(pid) for pid in json.loads(answer)["stuck"]))
        except NoAnswer as error:
            # Where no process listens, none holds a GPU: its own end with it.
            return HandleRelease(unsure=str(error)) if error.there else HandleRelease()
        except (ValueError, TypeError, KeyError, RecursionError):
            status = OK
        return HandleRelease(unsure=f"{self._path}: HTTP status {status} and nothing that is understood")

    def _ask(
        self, target: str, body: bytes, adapter: TypeAdapter[T], until: float
    ) -> T | Refusal | LostOrder:
        """Return an answer; a refusal where the question was not taken, LostOrder where no answer came."""
        if self._withheld:
            return Refusal(SkipReason.PROBER_AWAY, self._withheld)
        began = self._clock.mono()
        try:
            headers = ((VERSION, __version__),)
            status, answer = request(self._path, "POST", target, body, until - began, SERVER, headers)
            if status == OK:
                return adapter.validate_json(answer)
        except NoAnswer as error:
            if error.heard:
                return LostOrder(str(error), self._clock.mono() - began)
            return Refusal(SkipReason.PROBER_AWAY, str(error))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_context=False)[0]["msg"]
            why = f"{self._path}: what it answers is not understood: {problem}"
            return LostOrder(why, self._clock.mono() - began)
        why = f"{self._path}: {detail(answer) or f'HTTP status {status}'}"
        return Refusal(SkipReason.PROBER_AWAY, why)


FACTS_REQUEST = TypeAdapter(FactsRequest)
FACTS_ANSWER = TypeAdapter(FactsAnswer)
PROBE_REQUEST = TypeAdapter(ProbeRequest)
PROBE_ANSWER = TypeAdapter(ProbeAnswer)
PROBE_TERMS: TypeAdapter[ProbeTerms | Absent] = TypeAdapter(ProbeTerms | Absent)


def terms_of(
    hardware: Hardware, options: ProbeOptions, expect: Expect, boot_id: str, prober: RemoteProber | None,
    within: float = FACTS_SECONDS,
) -> ProbeTerms | Absent:  # fmt: skip
    """Return the terms of a probe that this daemon would order now, from the process that would run it."""
    if prober is None:
        return read_terms(hardware, options, expect, boot_id)
    terms = prober.terms(options, expect, within)
    return terms if isinstance(terms, Absent) else replace(terms, boot_id=boot_id)


def lost_probe(gone: LostOrder, engine: str, gpus: Sequence[Gpu], at: float) -> Probed:
    """Return the probe of a prober that is gone: held for the longest possible time, and nothing measured."""
    plan = Plan(engine, tuple(gpu.uuid for gpu in gpus), ())
    return Probed(
        schema=PROBED_SCHEMA, at=at, by="daemon", forced=False, outcome="away",
        why=f"the prober went away in the middle of it: {gone.why}", plan=plan,
        gpus=tuple(ProbedGpu(gpu.index, gpu.uuid) for gpu in gpus), conditions=(), settings={},
        seconds=gone.seconds, held_seconds=gone.seconds,
    )  # fmt: skip


def detail(answer: bytes) -> str:
    """Return its reason for a refusal; empty where it gives none."""
    try:
        detail = json.loads(answer)["detail"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return "".join(c for c in str(detail) if c.isprintable())[:500]
