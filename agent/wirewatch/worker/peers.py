"""Copies between all pairs of GPUs: disjoint pairs at once, both directions together."""

from collections.abc import Sequence

from cuda.bindings import driver

from wirewatch.core.probing.document import Copy
from wirewatch.core.probing.plan import Plan, rounds
from wirewatch.worker.gpu import Gpu, done, span

_CAN_BE = (
    driver.CUresult.CUDA_SUCCESS,
    driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS,
)


def copy_all(gpus: Sequence[Gpu], plan: Plan) -> list[Copy]:
    """Every directed pair, from the front of one's buffer to behind the front of the other's."""
    direct = {(a.rank, b.rank): _reach(a, b) for a in gpus for b in gpus if a is not b}
    found = []
    for pairs in rounds(len(gpus)):
        both = [way for a, b in pairs for way in ((a, b), (b, a))]
        found += _round([(gpus[a], gpus[b]) for a, b in both], plan, direct)
    return found


def _reach(one: Gpu, other: Gpu) -> bool:
    """Whether the driver lets one GPU reach the other's memory; it does from now on."""
    if not done(driver.cuDeviceCanAccessPeer(one.device.device_id, other.device.device_id)):
        return False
    one.device.set_current()
    (status,) = driver.cuCtxEnablePeerAccess(other.context, 0)
    if status not in _CAN_BE:
        done((status,))
    return bool(status != driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS)


def _round(ways: Sequence[tuple[Gpu, Gpu]], plan: Plan, direct: dict[tuple[int, int], bool]) -> list[Copy]:
    marks = []
    for source, destination in ways:
        source.begin()
        # The first copy brings all pairs of the round to work; the others are timed.
        _copy(source, destination, plan.copy_bytes)
        first = source.event()
        for _ in range(plan.copies):
            _copy(source, destination, plan.copy_bytes)
        marks.append((first, source.event()))
        source.end()
    for source, _ in ways:
        source.settle()
    return [
        Copy(
            source=a.rank, destination=b.rank, size_bytes=plan.copy_bytes,
            seconds=span(*mark) / plan.copies, runs=plan.copies + 1, direct=direct[a.rank, b.rank],
        )
        for (a, b), mark in zip(ways, marks, strict=True)
    ]  # fmt: skip


def _copy(source: Gpu, destination: Gpu, size: int) -> None:
    done(
        driver.cuMemcpyPeerAsync(
            destination.data + size, destination.context, source.data, source.context, size, source.handle
        )
    )
