"""The kernels compiled by NVRTC as the worker has it do, for real architectures; needs no GPU."""

import ctypes
from collections.abc import Iterator

import pytest

from tests.node.worker.workerprocess import TORCH
from wirewatch.core.probe import DTYPES
from wirewatch.worker import kernels

pytestmark = pytest.mark.system

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
"""Turing is the oldest that CUDA 13 knows, and has the product without bfloat16."""


@pytest.fixture(scope="module")
def nvrtc() -> ctypes.CDLL:
    """NVRTC of NVIDIA's wheel, which stands beside torch."""
    places = list(TORCH.parents[1].glob("lib/python3*/site-packages/nvidia"))
    # What it looks for by name alone comes first: nothing names the folder of a wheel.
    for path in [path for place in places for path in place.glob("*/lib/libnvrtc-builtins.so.*")]:
        ctypes.CDLL(str(path))
    found = [str(path) for place in places for path in place.glob("*/lib/libnvrtc.so.*")]
    assert found, "no NVRTC here: tests/system/packages installs it"
    return ctypes.CDLL(found[0])


@pytest.fixture
def program(nvrtc: ctypes.CDLL, dtype: str) -> Iterator[ctypes.c_void_p]:
    handle = ctypes.c_void_p()
    source = kernels.source(dtype).encode()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(handle), source, b"worker", 0, None, None) == 0
    yield handle
    nvrtc.nvrtcDestroyProgram(ctypes.byref(handle))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_they_compile_for_each_type_without_a_warning_and_have_all_names(
    nvrtc: ctypes.CDLL, program: ctypes.c_void_p, architecture: str
) -> None:
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), b"--std=c++17")
    status = nvrtc.nvrtcCompileProgram(program, 2, options)
    assert (status, _text(nvrtc, "ProgramLog", program)) == (0, b"")
    code = _text(nvrtc, "CUBIN", program)
    assert code.startswith(b"\x7fELF")
    assert [name for name in kernels.NAMES if f".text.{name}\0".encode() not in code] == []


def _text(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    assert nvrtc[f"nvrtcGet{what}Size"](program, ctypes.byref(size)) == 0
    made = ctypes.create_string_buffer(size.value)
    assert nvrtc[f"nvrtcGet{what}"](program, made) == 0
    return made.raw[: size.value].removesuffix(b"\0") if what == "ProgramLog" else made.raw
