"""NVML's GPU performance monitoring: what a GPU did between two looks, without touching who uses it.

A look is a copy of the GPU's own counters; their difference is worked out by the library.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from wirewatch.core.types import Json

NOT_SUPPORTED, NOT_FOUND = 3, 6


class Gpm:
    """Remembers the last look at each GPU; two buffers a GPU, used in turns.

    Args:
        nvml: the binding.
        mono: monotonic seconds.
    """

    def __init__(self, nvml: Any, mono: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._mono = mono
        self._kept: dict[int | None, tuple[Any, float]] = {}
        self._spare: dict[int | None, Any] = {}

    def supported(self, handle: Any) -> bool:
        """Whether this GPU offers it: Hopper and later. Takes no look.

        Raises:
            NVMLError: a driver that knows nothing of it, a GPU that cannot be asked.
        """
        return bool(self._nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)

    def since_last(self, place: int | None, handle: Any, metrics: Sequence[int | str]) -> Json:
        """Values of these metrics (nvmlGpmMetricId_t) since the last look at this GPU, and seconds between.

        They are as NVML tells them: per cent and MiB/s. A metric that this GPU does not offer is left out.
        `place` is what the GPU goes by here.

        Raises:
            NVMLError: not supported here, no look before this one, a GPU that cannot be asked.
        """
        before = self._kept.get(place)
        if before is None and not self.supported(handle):
            raise self._nvml.NVMLError(NOT_SUPPORTED)
        if place not in self._spare:
            self._spare[place] = self._nvml.nvmlGpmSampleAlloc()
        # It stays the spare one until it holds a look: a GPU that fails for hours must not eat buffers.
        self._nvml.nvmlGpmSampleGet(handle, self._spare[place])
        now, sample = self._mono(), self._spare.pop(place)
        self._kept[place] = (sample, now)
        if before is None:
            raise self._nvml.NVMLError(NOT_FOUND)
        self._spare[place] = before[0]
        return {"seconds": now - before[1], "metrics": self._metrics(before[0], sample, metrics)}

    def _metrics(self, first: Any, second: Any, wanted: Sequence[int | str]) -> dict[str, Json]:
        asked = self._nvml.c_nvmlGpmMetricsGet_t()
        asked.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(wanted)
        asked.sample1, asked.sample2 = first, second
        for place, number in enumerate(wanted):
            asked.metrics[place].metricId = number
        self._nvml.nvmlGpmMetricsGet(asked)
        told = [asked.metrics[place] for place in range(len(wanted))]
        return {
            str(one.metricId): float(one.value)
            for one in told
            if one.nvmlReturn == 0 and math.isfinite(one.value)
        }
