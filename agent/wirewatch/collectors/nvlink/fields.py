"""Which NVML questions tell about NVLink, by generation. Source: nvml.h and docs/METRICS.md.

A device is asked everything once a session and afterwards only what it supports, so the generation need
not be known: it is what answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from wirewatch.core.links import old_state, state
from wirewatch.core.ports import ALL_LINKS, Question

KIB = 1024

MIG_MODE = Question("MigMode")
COMMON_SPEED = Question("Field", (90,))
FABRIC = Question("GpuFabricInfoV")
EFFECTIVE_BER = Question("Field", (220, ALL_LINKS))
C2C_COUNT = Question("Field", (170,))


@cache
def of_all(field: int) -> Question:
    return Question("Field", (field, ALL_LINKS))


@dataclass(frozen=True, slots=True)
class Traffic:
    """A pair of counters and the twin that must move with them; `scale` turns both into bytes."""

    transmit: int
    receive: int
    twin_transmit: int
    twin_receive: int
    scale: int
    twin_proof: int

    def questions(self) -> tuple[Question, Question, Question, Question]:
        return (
            of_all(self.transmit),
            of_all(self.receive),
            of_all(self.twin_transmit),
            of_all(self.twin_receive),
        )


TRAFFIC: Sequence[Traffic] = (
    # NVLink 5: true bytes, with packets as the twin; 10 000 packets carry at least 160 kB.
    Traffic(202, 204, 201, 203, scale=1, twin_proof=10_000),
    # Before: KiB of payload, with KiB including protocol as the twin. Idle links exchange a few KiB of
    # protocol without payload, so only a growth of 64 MiB proves that payload must have moved.
    Traffic(138, 139, 140, 141, scale=KIB, twin_proof=65_536),
)

ERRORS: Mapping[str, tuple[Question, ...]] = {
    "replay": (of_all(161), Question("Field", (52,))),
    "recovery": (of_all(162), Question("Field", (59,))),
    "crc": (of_all(163), Question("Field", (38,))),
    "crc_data": (Question("Field", (45,)),),
    "ecc_data": (Question("Field", (160,)),),
    "malformed": (of_all(206),),
    "buffer_overrun": (of_all(207),),
    "receive": (of_all(208),),
    "receive_remote": (of_all(209),),
    "receive_general": (of_all(210),),
    "local_integrity": (of_all(211),),
    "transmit_discards": (of_all(212),),
    "recovery_successful": (of_all(213),),
    "recovery_failed": (of_all(214),),
    "effective": (of_all(219),),
    "symbol": (of_all(221),),
}
"""Kind of error to its all-links question, newest generation first."""


@lru_cache(maxsize=64)
def error_questions(skip: frozenset[Question]) -> tuple[tuple[str, Question], ...]:
    """Kinds of error that a device has, with the newest question that it supports."""
    supported = {kind: [q for q in questions if q not in skip] for kind, questions in ERRORS.items()}
    return tuple((kind, questions[0]) for kind, questions in supported.items() if questions)


LINK_ERRORS: Mapping[str, int] = {
    kind: int(questions[0].args[0]) for kind, questions in ERRORS.items() if ALL_LINKS in questions[0].args
}
"""Kind of error to its field, where a single link can be asked too."""


@cache
def speed(link: int) -> Question:
    return Question("Field", (164, link))


def c2c_status(link: int) -> Question:
    return Question("Field", (171, link))


def c2c_speed(link: int) -> Question:
    return Question("Field", (172, link))


@lru_cache(maxsize=64)
def poll_questions(links: int, *, old: bool) -> tuple[Question, ...]:
    """What a poll asks of a GPU with so many links; `old` also asks in the way from before field 165."""
    questions = [MIG_MODE, FABRIC, EFFECTIVE_BER, C2C_COUNT]
    questions += [q for t in TRAFFIC for q in t.questions()]
    questions += [q for qs in ERRORS.values() for q in qs]
    questions += [ask(link) for link in range(links) for ask in (state, speed)]
    if old:
        questions += [COMMON_SPEED, *(old_state(link) for link in range(links))]
    return tuple(questions)


def c2c_questions(links: int) -> tuple[Question, ...]:
    return tuple(ask(link) for link in range(links) for ask in (c2c_status, c2c_speed))


def detail_questions(
    links: Sequence[int], traffic: Traffic | None, kinds: Sequence[str]
) -> tuple[Question, ...]:
    """Bytes and errors link by link."""
    fields = [LINK_ERRORS[k] for k in kinds if k in LINK_ERRORS]
    if traffic is not None:
        fields += [traffic.transmit, traffic.receive]
    return tuple(Question("Field", (field, link)) for field in fields for link in links)
