"""The probe port from a recording: the probe that was run there, as if it ran now."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.ports import Clock, Order
from wirewatch.core.probe import PROBED_SCHEMA, Outcome, Probed, ProbedGpu, unsound
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw.playing import Player

RUN = ("probe", "Run()")
_PROBED = TypeAdapter(Probed)
_LOOK = 0.02


class ReplayProbe:
    """Answers every order with the recorded probe, after as long as that one took if `slowly`."""

    def __init__(self, player: Player, clock: Clock, *, slowly: bool = False) -> None:
        self._player = player
        self._clock = clock
        self._slowly = slowly

    def engine(self, wanted: str) -> str | Absent:
        """The engine of the recorded probe, whatever is wanted."""
        value = self._player.answer(RUN).value
        probed = _decode(value)
        if isinstance(probed, Absent):
            return probed
        return probed.plan.engine if wanted in {"auto", probed.plan.engine} else _other(wanted)

    def settings(self) -> Mapping[str, str]:
        probed = _decode(self._player.answer(RUN).value)
        return {} if isinstance(probed, Absent) else probed.settings

    @contextmanager
    def lock(self) -> Iterator[str | None]:
        """A recording is nobody's to lock."""
        yield None

    def run(self, order: Order) -> Probed:
        probed = _decode(self._player.answer(RUN).value)
        if isinstance(probed, Absent):
            return self._nothing(order, "failed", str(probed))
        if self._slowly and (why := _sleep(probed.seconds, order)) is not None:
            return self._nothing(order, "preempted", why)
        return replace(probed, at=self._clock.now(), by="recording", forced=order.forced)

    def _nothing(self, order: Order, outcome: Outcome, why: str) -> Probed:
        return Probed(
            schema=PROBED_SCHEMA, at=self._clock.now(), by="recording", forced=order.forced, outcome=outcome,
            why=why, plan=order.plan, gpus=tuple(ProbedGpu(g.index, g.uuid) for g in order.gpus),
            conditions=order.conditions, settings=dict(order.settings), seconds=0.0, held_seconds=0.0,
        )  # fmt: skip


def _sleep(seconds: float, order: Order) -> str | None:
    """As long as the recorded probe took, or until nobody wants it any more: then why."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if (why := order.withdrawn()) is not None:
            return why
        time.sleep(min(_LOOK, left))
    return None


def _other(wanted: str) -> Absent:
    return Absent(Why.UNSUPPORTED, f"the recorded probe is not of engine {wanted}")


def _decode(value: Json | Absent) -> Probed | Absent:
    if isinstance(value, Absent):
        return value
    try:
        # By way of JSON, where strict models take lists for tuples.
        probed = _PROBED.validate_json(json.dumps(value))
    except ValidationError as error:
        return Absent(Why.MALFORMED, f"not a recorded probe: {error.errors()[0]['msg']}")
    wrong = unsound(probed)
    return Absent(Why.MALFORMED, f"not a recorded probe: {wrong}") if wrong else probed
