"""What NVML's return codes mean to us. Source: nvml.h, nvmlReturn_t."""

from collections.abc import Mapping

from wirewatch.core.types import Absent, Why

UNINITIALIZED = 1
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIBRARY_DRIVER_MISMATCH = 18

CODES: Mapping[int, tuple[Why, str]] = {
    1: (Why.LOST, "NVML is not initialised"),
    2: (Why.UNSUPPORTED, "NVML does not know this argument here"),
    3: (Why.UNSUPPORTED, "not supported by this device"),
    4: (Why.DENIED, "no permission; run as root"),
    6: (Why.MISSING, "not found"),
    7: (Why.MALFORMED, "insufficient size"),
    8: (Why.MISSING, "external power cables are not attached"),
    9: (Why.MISSING, "the NVIDIA driver is not loaded"),
    10: (Why.TIMEOUT, "the driver timed out"),
    11: (Why.LOST, "the kernel found an interrupt problem with the GPU"),
    12: (Why.MISSING, "libnvidia-ml.so.1 not found"),
    13: (Why.UNSUPPORTED, "this driver's NVML has no such function"),
    14: (Why.LOST, "corrupted infoROM"),
    15: (Why.LOST, "GPU has fallen off the bus or is otherwise inaccessible"),
    16: (Why.LOST, "the GPU needs a reset"),
    17: (Why.DENIED, "the GPU is blocked by the operating system"),
    18: (Why.MISSING, "driver and NVML library versions differ; a driver upgrade is half done"),
    19: (Why.TIMEOUT, "the GPU is in use"),
    25: (Why.UNSUPPORTED, "structure version not known to this driver"),
    26: (Why.UNSUPPORTED, "deprecated and gone"),
    27: (Why.TIMEOUT, "not ready"),
    28: (Why.LOST, "GPU not found"),
}
SESSION_ENDED = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_DRIVER_MISMATCH})
"""Codes after which only a new initialisation can help."""


def absent_code(code: int) -> Absent:
    why, detail = CODES.get(code, (Why.MALFORMED, "unknown error"))
    return Absent(why, f"{detail} (NVML error {code})", code)


class LibraryError(Exception):
    """NVML cannot be used; `code` is its return code."""

    def __init__(self, code: int) -> None:
        super().__init__(str(absent_code(code)))
        self.code = code
