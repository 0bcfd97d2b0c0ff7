"""Reading NVLink: one job a GPU, all-links values each poll, single links when due or when errors moved."""

from collections.abc import Mapping

from wirewatch.collectors.nvlink import fields
from wirewatch.collectors.nvlink.values import (
    START,
    Detail,
    Fabric,
    GpuLinks,
    Link,
    Memory,
    NvlinkOptions,
    Reading,
    Traffic,
)  # fmt: skip
from wirewatch.core.asking import NOT_ASKED, Asked, Supported, as_int, ask_gpu, member
from wirewatch.core.bits import ber
from wirewatch.core.links import count_links, old_state, state
from wirewatch.core.pergpu import Memories, is_lost, read_gpus, remembered
from wirewatch.core.ports import Gpu, Hardware, Question
from wirewatch.core.rates import Window, delta, measured
from wirewatch.core.types import Absent, Why


def read(hardware: Hardware, memories: Memories[Memory], options: NvlinkOptions) -> Reading | Absent:
    def one(gpu: Gpu) -> GpuLinks | Absent:
        return _read_gpu(hardware, gpu, remembered(memories, gpu, START), options)

    return read_gpus(hardware.nvml, one)


def _read_gpu(hardware: Hardware, gpu: Gpu, memory: Memory, options: NvlinkOptions) -> GpuLinks | Absent:
    fresh = memory.supported.session != hardware.nvml.session()
    # Told once a session: a GPU does not grow links.
    count = count_links(hardware.nvml, gpu.key) if fresh else memory.links
    old = fresh or state(0) in memory.supported.skip
    asked = ask_gpu(hardware.nvml, gpu.key, fields.poll_questions(count, old=old), memory.supported)
    if isinstance(asked, Absent):
        return asked
    links = _links(asked, count)
    errors = {kind: asked.whole(q) for kind, q in fields.error_questions(asked.supported.skip)}
    detail = _due_detail(hardware, gpu, memory, options, asked, tuple(e.link for e in links), errors)
    raw_ber = asked.whole(fields.EFFECTIVE_BER)
    return GpuLinks(
        mig=_mig(asked),
        links=links,
        traffic=_traffic(asked, memory.raw),
        errors=errors,
        effective_ber=raw_ber if isinstance(raw_ber, Absent) else ber(raw_ber),
        fabric=_fabric(asked),
        c2c=_c2c(hardware, gpu, asked, memory.last),
        detail=detail,
        count=count,
        supported=asked.supported,
    )


def _unsupported(value: object) -> bool:
    return isinstance(value, Absent) and value.why is Why.UNSUPPORTED


def _mig(asked: Asked) -> bool:
    mode = asked.json(fields.MIG_MODE)
    return isinstance(mode, list | tuple) and bool(mode) and mode[0] == 1


def _links(asked: Asked, count: int) -> tuple[Link, ...]:
    links = []
    for number in range(count):
        told = asked.whole(state(number))
        if _unsupported(told):
            told = asked.whole(old_state(number))
        if _unsupported(told):
            continue
        speed = asked.whole(fields.speed(number))
        if _unsupported(speed):
            speed = asked.whole(fields.COMMON_SPEED)
        links.append(Link(number, told, speed if isinstance(speed, Absent) else speed * 1e6))
    return tuple(links)


def _c2c(hardware: Hardware, gpu: Gpu, asked: Asked, last: GpuLinks | None) -> tuple[Link, ...]:
    count = asked.whole(fields.C2C_COUNT)
    if isinstance(count, Absent) and is_lost(count):
        return tuple(Link(known.link, count, count) for known in (last.c2c if last else ()))
    if isinstance(count, Absent) or count == 0:
        return ()
    told = ask_gpu(hardware.nvml, gpu.key, fields.c2c_questions(count), Supported())
    links = []
    for number in range(count):
        status = told if isinstance(told, Absent) else told.whole(fields.c2c_status(number))
        speed = told if isinstance(told, Absent) else told.whole(fields.c2c_speed(number))
        links.append(Link(number, status, speed if isinstance(speed, Absent) else speed * 1e6))
    return tuple(links)


def _used_traffic(asked: Asked) -> fields.Traffic | None:
    """The counters that this device has: one of the two directions is enough."""
    for traffic in fields.TRAFFIC:
        if not all(_unsupported(asked.whole(q)) for q in traffic.questions()[:2]):
            return traffic
    return None


def _traffic(asked: Asked, before: Mapping[Question, int]) -> Traffic:
    used = _used_traffic(asked)
    if used is None:
        return Traffic(NOT_ASKED, NOT_ASKED)
    raw = {q: v for q in used.questions() if not isinstance(v := asked.whole(q), Absent)}

    def payload(counter: Question, twin: Question) -> int | Absent:
        growth = delta(before.get(twin), raw[twin]) if twin in raw else 0
        value = measured(asked.whole(counter), before.get(counter), growth, used.twin_proof)
        return value if isinstance(value, Absent) else value * used.scale

    transmit, receive, twin_transmit, twin_receive = used.questions()
    read = (asked.whole(transmit), asked.whole(receive))
    lost = next((v for v in read if isinstance(v, Absent) and is_lost(v)), None)
    return Traffic(payload(transmit, twin_transmit), payload(receive, twin_receive), lost, raw)


def _fabric(asked: Asked) -> Fabric | Absent:
    info = asked.json(fields.FABRIC)
    numbers = {n: as_int(member(info, n)) for n in ("state", "status", "healthMask", "cliqueId")}
    for value in numbers.values():
        if isinstance(value, Absent):
            return value
    known = {n: v for n, v in numbers.items() if not isinstance(v, Absent)}
    summary = as_int(member(info, "healthSummary"))
    uuid = member(info, "clusterUuid")
    return Fabric(
        state=known["state"],
        status=known["status"],
        mask=known["healthMask"],
        summary=None if isinstance(summary, Absent) else summary,
        clique=known["cliqueId"],
        cluster=uuid if isinstance(uuid, str) else "",
    )


def _due_detail(
    hardware: Hardware,
    gpu: Gpu,
    memory: Memory,
    options: NvlinkOptions,
    asked: Asked,
    links: tuple[int, ...],
    errors: Mapping[str, int | Absent],
) -> Detail | Absent | None:
    """Single links, when their time has come or when an all-links error counter moved; else None."""
    moved = [k for k, v in errors.items() if not isinstance(v, Absent) and _moved(memory.errors.get(k), v)]
    mono = hardware.clock.mono()
    stale = memory.detail is None or mono - memory.detail.mono >= options.link_detail_interval
    wanted = options.link_detail and stale
    if not links or not (moved or wanted):
        return None
    traffic = _used_traffic(asked) if options.link_detail else None
    kinds = tuple(errors) if options.link_detail else tuple(moved)
    questions = fields.detail_questions(links, traffic, kinds)
    if not questions:
        return None
    answers = ask_gpu(hardware.nvml, gpu.key, questions, Supported())
    if isinstance(answers, Absent):
        return answers

    def by_link(number: int, scale: int = 1) -> dict[int, int]:
        told = {link: answers.whole(Question("Field", (number, link))) for link in links}
        return {link: v * scale for link, v in told.items() if not isinstance(v, Absent)}

    return Detail(
        mono,
        by_link(traffic.transmit, traffic.scale) if traffic else {},
        by_link(traffic.receive, traffic.scale) if traffic else {},
        {k: by_link(fields.LINK_ERRORS[k]) for k in kinds if k in fields.LINK_ERRORS},
    )


def _moved(window: Window | None, value: int) -> bool:
    return window is not None and window.last is not None and value != window.last
