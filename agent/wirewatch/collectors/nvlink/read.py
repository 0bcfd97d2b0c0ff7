"""Read NVLink: one job a GPU, all-links values each poll, single links when due or when errors moved.

Field numbers are from nvml.h; docs/METRICS.md gives the meaning of each. A device is asked everything once a
session and afterwards only the questions that it supports. So its answers show its generation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from wirewatch.collectors.nvlink.model import (
    START,
    Fabric,
    GpuLinks,
    LinkDetail,
    NvlinkLink,
    NvlinkMemory,
    NvlinkOptions,
    NvlinkReading,
    NvlinkTraffic,
)
from wirewatch.core.collector import Memories, is_lost, is_unsupported, remembered, since_boot, watch_gpus
from wirewatch.core.nvml import (
    FABRIC_STATES,
    FABRIC_SUMMARIES,
    MIG_MODE,
    MOST_LINKS,
    NOT_ASKED,
    Asked,
    Supported,
    as_count,
    as_int,
    as_str,
    ask_gpu,
    ber,
    count_links,
    link_speed,
    member,
    old_speed,
    old_state,
    state,
)
from wirewatch.core.ports import ALL_LINKS, Gpu, Hardware, Question
from wirewatch.core.statistics import delta, measured
from wirewatch.core.types import Absent, Why, value_or

KIB = 1024


@cache
def all_links(field: int) -> Question:
    return Question("Field", (field, ALL_LINKS))


@dataclass(frozen=True, slots=True)
class TrafficFields:
    """A pair of counters and the twin that must move with them; `scale` turns both into bytes."""

    transmit: int
    receive: int
    twin_transmit: int
    twin_receive: int
    scale: int
    twin_proof: int

    def questions(self) -> tuple[Question, ...]:
        """Sent, received, and the twin of each, over all links."""
        return tuple(map(all_links, (self.transmit, self.receive, self.twin_transmit, self.twin_receive)))


TRAFFIC_FIELDS: Sequence[TrafficFields] = (
    # NVLink 5: true bytes, with packets as the twin; 10 000 packets carry at least 160 kB.
    TrafficFields(202, 204, 201, 203, scale=1, twin_proof=10_000),
    # Before: KiB of payload, with KiB including protocol as the twin. Idle links exchange a few KiB of
    # protocol without payload, so only a growth of 64 MiB proves that payload must have moved.
    TrafficFields(138, 139, 140, 141, scale=KIB, twin_proof=65_536),
)
"""The byte counters of each generation, newest first; a device has the counters of one generation."""

ERROR_QUESTIONS: Mapping[str, tuple[Question, ...]] = {
    "replay": (all_links(161), Question("Field", (52,))),
    "recovery": (all_links(162), Question("Field", (59,))),
    "crc": (all_links(163), Question("Field", (38,))),
    "crc_data": (Question("Field", (45,)),),
    "ecc_data": (Question("Field", (160,)),),
    "malformed": (all_links(206),),
    "buffer_overrun": (all_links(207),),
    "receive": (all_links(208),),
    "receive_remote": (all_links(209),),
    "receive_general": (all_links(210),),
    "local_integrity": (all_links(211),),
    "transmit_discards": (all_links(212),),
    "recovery_successful": (all_links(213),),
    "recovery_failed": (all_links(214),),
    "effective": (all_links(219),),
    "symbol": (all_links(221),),
}
"""Kind of error to its all-links question, newest generation first."""


@lru_cache(maxsize=64)
def error_questions(skip: frozenset[Question]) -> tuple[tuple[str, Question], ...]:
    """Kinds of error that a device has, with the newest question that it supports."""
    supported = {kind: [q for q in questions if q not in skip] for kind, questions in ERROR_QUESTIONS.items()}
    return tuple((kind, questions[0]) for kind, questions in supported.items() if questions)


def read(
    hardware: Hardware, memories: Memories[NvlinkMemory], options: NvlinkOptions
) -> NvlinkReading | Absent:
    booted = since_boot(hardware)

    def one(gpu: Gpu) -> GpuLinks | Absent:
        read = _read_gpu(hardware, gpu, remembered(memories, gpu, START), options)
        return read if isinstance(read, Absent) else replace(read, booted=booted)

    return watch_gpus(hardware, memories, one)


_VIRTUALIZATION = Question("VirtualizationMode")
_PASSED_ON = frozenset({1, 2})
"""NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH and _VGPU (nvml.h)."""
_COMMON_SPEED = Question("Field", (90,))
_FABRIC = Question("GpuFabricInfoV")
_EFFECTIVE_BER = Question("Field", (220, ALL_LINKS))
_C2C_COUNT = Question("Field", (170,))
_C2C_FIELDS = (171, 172)
"""Status and speed of one chip-to-chip link."""
_LINK_ERRORS = {k: int(qs[0].args[0]) for k, qs in ERROR_QUESTIONS.items() if ALL_LINKS in qs[0].args}
"""Kind of error to its field, where a single link can be asked too."""


@lru_cache(maxsize=64)
def _poll_questions(links: int, *, old: bool) -> tuple[Question, ...]:
    """Questions of a poll to a GPU with so many links; `old` also asks in the way from before field 165."""
    questions = [MIG_MODE, _FABRIC, _EFFECTIVE_BER, _C2C_COUNT]
    questions += [q for t in TRAFFIC_FIELDS for q in t.questions()]
    questions += [q for qs in ERROR_QUESTIONS.values() for q in qs]
    questions += [ask(link) for link in range(links) for ask in (state, link_speed)]
    if old:
        questions += [_COMMON_SPEED, *(old_state(link) for link in range(links))]
        questions += [speed for link in range(links) if (speed := old_speed(link))]
    return tuple(questions)


def _detail_questions(
    links: Sequence[int], traffic: TrafficFields | None, kinds: Sequence[str]
) -> tuple[Question, ...]:
    fields = [_LINK_ERRORS[k] for k in kinds if k in _LINK_ERRORS]
    if traffic is not None:
        fields += [traffic.transmit, traffic.receive]
    return tuple(Question("Field", (field, link)) for field in fields for link in links)


def _read_gpu(
    hardware: Hardware, gpu: Gpu, memory: NvlinkMemory, options: NvlinkOptions
) -> GpuLinks | Absent:
    fresh = memory.supported.session != hardware.nvml.session()
    # Asked once a session: a GPU does not grow links.
    count = count_links(hardware.nvml, gpu.key) if fresh else memory.links
    old = fresh or state(0) in memory.supported.skip
    questions = _poll_questions(count, old=old)
    asked = ask_gpu(hardware.nvml, gpu.key, questions, memory.supported, (_VIRTUALIZATION,))
    if isinstance(asked, Absent):
        return asked
    if asked.supported.mig != memory.supported.mig and not fresh:
        return _read_gpu(hardware, gpu, replace(memory, supported=Supported()), options)
    links = _links(asked, count)
    errors = {kind: asked.whole(q) for kind, q in error_questions(asked.supported.skip)}
    detail = _due_detail(hardware, gpu, memory, options, asked, tuple(e.link for e in links), errors)
    raw_ber = asked.whole(_EFFECTIVE_BER)
    return GpuLinks(
        mig=asked.supported.mig,
        links=links,
        traffic=_traffic(asked, memory.raw),
        errors=errors,
        effective_ber=raw_ber if isinstance(raw_ber, Absent) else ber(raw_ber),
        fabric=_fabric(asked),
        c2c=_c2c(hardware, gpu, asked, memory.last),
        detail=detail,
        count=count,
        supported=asked.supported,
        virtual=asked.whole(_VIRTUALIZATION) in _PASSED_ON,
    )


def _links(asked: Asked, count: int) -> tuple[NvlinkLink, ...]:
    links = []
    for number in range(count):
        up = asked.whole(state(number))
        if is_unsupported(up):
            up = asked.whole(old_state(number))
        if is_unsupported(up):
            continue
        speed = asked.whole(link_speed(number))
        for old in filter(None, (old_speed(number), _COMMON_SPEED)):
            if is_unsupported(speed):
                speed = asked.whole(old)
        links.append(NvlinkLink(number, up, speed if isinstance(speed, Absent) else speed * 1e6))
    return tuple(links)


def _c2c(hardware: Hardware, gpu: Gpu, asked: Asked, last: GpuLinks | None) -> tuple[NvlinkLink, ...]:
    count = as_count(asked.json(_C2C_COUNT), MOST_LINKS)
    if is_lost(count):
        known = [link.link for link in last.c2c] if last else [0]
        return tuple(NvlinkLink(number, count, count) for number in known)
    if isinstance(count, Absent) or count == 0:
        return ()
    asks = [tuple(Question("Field", (field, link)) for field in _C2C_FIELDS) for link in range(count)]
    answers = ask_gpu(hardware.nvml, gpu.key, tuple(q for both in asks for q in both), Supported())
    links = []
    for number, both in enumerate(asks):
        status, speed = (answers if isinstance(answers, Absent) else answers.whole(q) for q in both)
        links.append(NvlinkLink(number, status, speed if isinstance(speed, Absent) else speed * 1e6))
    return tuple(links)


def _used_traffic(asked: Asked) -> TrafficFields | None:
    """Return the counters that this device has: either direction is enough."""
    has = (t for t in TRAFFIC_FIELDS if not all(is_unsupported(asked.whole(q)) for q in t.questions()[:2]))
    return next(has, None)


def _traffic(asked: Asked, before: Mapping[Question, int]) -> NvlinkTraffic:
    used = _used_traffic(asked)
    if used is None:
        return NvlinkTraffic(NOT_ASKED, NOT_ASKED)
    raw = {q: v for q in used.questions() if not isinstance(v := asked.whole(q), Absent)}

    def payload(counter: Question, twin: Question) -> int | Absent:
        growth = delta(before.get(twin), raw[twin]) if twin in raw else 0
        value = measured(asked.whole(counter), before.get(counter), growth, used.twin_proof)
        return value if isinstance(value, Absent) else value * used.scale

    transmit, receive, twin_transmit, twin_receive = used.questions()
    read = (asked.whole(transmit), asked.whole(receive))
    lost = next(filter(is_lost, read), None)
    return NvlinkTraffic(payload(transmit, twin_transmit), payload(receive, twin_receive), lost, raw)


def _fabric(asked: Asked) -> Fabric | Absent:
    """Return the registration; MALFORMED for an unnamed state or summary, which need not be healthy."""
    info = asked.json(_FABRIC)
    numbers = {n: as_int(member(info, n)) for n in ("state", "status", "healthMask", "cliqueId")}
    for value in numbers.values():
        if isinstance(value, Absent):
            return value
    known = {n: v for n, v in numbers.items() if not isinstance(v, Absent)}
    summary = as_int(member(info, "healthSummary"))
    if known["state"] not in range(len(FABRIC_STATES)):
        return Absent(Why.MALFORMED, f"this fabric state is not known: {known['state']}")
    if not isinstance(summary, Absent) and summary not in range(len(FABRIC_SUMMARIES)):
        return Absent(Why.MALFORMED, f"this fabric health summary is not known: {summary}")
    return Fabric(
        state=known["state"],
        status=known["status"],
        mask=known["healthMask"],
        summary=value_or(summary, None),
        clique=known["cliqueId"],
        cluster=value_or(as_str(member(info, "clusterUuid")), ""),
    )


def _due_detail(
    hardware: Hardware,
    gpu: Gpu,
    memory: NvlinkMemory,
    options: NvlinkOptions,
    asked: Asked,
    links: tuple[int, ...],
    errors: Mapping[str, int | Absent],
) -> LinkDetail | Absent | None:
    """Read single links, when their time has come or when an all-links error counter moved; else None."""
    known = {kind: window.last for kind, window in memory.errors.items()}
    moved = [k for k, v in errors.items() if k in known and not isinstance(v, Absent) and v != known[k]]
    mono = hardware.clock.mono()
    stale = memory.detail is None or mono - memory.detail.mono >= options.link_detail_interval
    if not (moved or stale):
        return None
    traffic = _used_traffic(asked) if options.link_detail else None
    kinds = tuple(errors) if options.link_detail else tuple(moved)
    questions = _detail_questions(links, traffic, kinds)
    if not questions:
        return None
    answers = ask_gpu(hardware.nvml, gpu.key, questions, Supported())
    if isinstance(answers, Absent):
        return answers

    def by_link(number: int, scale: int = 1) -> dict[int, int]:
        counts = {link: answers.whole(Question("Field", (number, link))) for link in links}
        return {link: v * scale for link, v in counts.items() if not isinstance(v, Absent)}

    return LinkDetail(
        mono,
        by_link(traffic.transmit, traffic.scale) if traffic else {},
        by_link(traffic.receive, traffic.scale) if traffic else {},
        {k: by_link(_LINK_ERRORS[k]) for k in kinds if k in _LINK_ERRORS},
    )
