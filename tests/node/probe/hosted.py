"""Host links of a drawn probe: 55.6 GB/s to each GPU and 54.9 back, over PCIe 5 x16 unless told otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from wirewatch.core.hostlink import HostCopies, HostMoved, HostPath, Pcie
from wirewatch.core.probe import Probed
from wirewatch.probe.hostpaths import HOST_BYTES

PATH = HostPath(Pcie(5, 16), payload=256, hidden=False, cpus="0-55", nodes=2)
HIDDEN = HostPath(Pcie(5, 16), nodes=1)
"""As in the virtual machines that were measured: flat, one node, no CPUs near."""
FULL = Pcie(5, 16)
TO, FROM = 55.6e9, 54.9e9
RUNS = 20


def hosted(
    probed: Probed, left: Mapping[str, float] | None = None, path: HostPath | Sequence[HostPath] = PATH,
    near: bool | None = True, fast: float = 1.0, now: Pcie = FULL,  # noqa: FBT001, FBT002
) -> Probed:  # fmt: skip
    """The probe with host links; `left`: what is left of the speed of `to 3`, `from 3`, and `all 3` together.

    `fast`: of the fastest single copy to the mean.
    """
    assert probed.document is not None
    count, slow = len(probed.plan.gpus), left or {}

    def copies(gpu: int) -> HostCopies:
        to, back = (
            HOST_BYTES / (rate * slow.get(f"{way} {gpu}", 1.0)) for way, rate in (("to", TO), ("from", FROM))
        )
        together = slow.get(f"all {gpu}", 1.0)
        return HostCopies(
            gpu=gpu, size_bytes=HOST_BYTES, to_device=to, to_device_low=to / fast, from_device=back,
            from_device_low=back / fast, both=1.1 * max(to, back), all_to_device=to / together,
            all_from_device=back / together, runs=RUNS, near=near,
        )  # fmt: skip

    paths = (path,) * count if isinstance(path, HostPath) else tuple(path)
    moved = tuple(HostMoved(gpu, RUNS * HOST_BYTES, RUNS * HOST_BYTES, now) for gpu in range(count))
    return replace(
        probed, paths=paths, hosts=moved, plan=replace(probed.plan, host_bytes=HOST_BYTES),
        document=replace(probed.document, hosts=tuple(map(copies, range(count)))),
    )  # fmt: skip
