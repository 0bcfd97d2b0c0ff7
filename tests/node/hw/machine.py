"""What the tests need to know of the machine that they run on."""

import ctypes

import pytest


def _has_nvml() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


NO_NVML = pytest.mark.skipif(_has_nvml(), reason="this machine has NVML")
