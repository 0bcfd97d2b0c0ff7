"""Copies from one GPU's memory into another's, through the driver."""

from collections.abc import Sequence

from cuda.bindings import driver

from wirewatch.core.probe import Copy, Plan
from wirewatch.worker import timing
from wirewatch.worker.gpu import Gpu, done

_CAN_BE = (
    driver.CUresult.CUDA_SUCCESS,
    driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS,
)


def copy_all(gpus: Sequence[Gpu], plan: Plan) -> list[Copy]:
    """Every directed pair, from the front of one's buffer to behind the front of the other's."""
    direct = {(a.rank, b.rank): _reach(a, b) for a in gpus for b in gpus if a is not b}
    return timing.copy_all(gpus, plan, _copy, lambda a, b: direct[a.rank, b.rank])


def _reach(one: Gpu, other: Gpu) -> bool:
    """Whether the driver lets one GPU reach the other's memory; it does from now on."""
    if not done(driver.cuDeviceCanAccessPeer(one.device.device_id, other.device.device_id)):
        return False
    one.device.set_current()
    (status,) = driver.cuCtxEnablePeerAccess(other.context, 0)
    if status not in _CAN_BE:
        done((status,))
    return bool(status != driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS)


def _copy(source: Gpu, destination: Gpu, size: int) -> None:
    done(
        driver.cuMemcpyPeerAsync(
            destination.data + size, destination.context, source.data, source.context, size, source.handle
        )
    )
