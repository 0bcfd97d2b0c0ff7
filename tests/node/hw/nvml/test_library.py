"""NVML's own values as plain ones; on a machine without the library, that it is missing."""

import ctypes
from dataclasses import dataclass, field
from typing import Any

import pynvml
import pytest

from tests.node.hw.machine import NO_NVML
from tests.rows import each
from wirewatch.core.ports import ALL_LINKS
from wirewatch.hw.nvml.library import LONGEST_BURST, NOT_FOUND, NOT_SUPPORTED, Bursts, Gpm, Library, plain
from wirewatch.hw.nvml.protocol import LibraryError


class Inner(ctypes.Structure):
    _fields_ = (("raw", ctypes.c_ubyte * 3), ("numbers", ctypes.c_uint * 2))


class Outer(ctypes.Structure):
    _fields_ = (("inner", Inner), ("name", ctypes.c_char * 8), ("ratio", ctypes.c_double))


def test_a_structure_becomes_an_object_with_byte_arrays_in_hexadecimal() -> None:
    inner = Inner((ctypes.c_ubyte * 3)(0xDE, 0, 0xFF), (ctypes.c_uint * 2)(1, 2))
    assert plain(Outer(inner, b"H200", 0.5)) == {
        "inner": {"raw": "de00ff", "numbers": [1, 2]},
        "name": "H200",
        "ratio": 0.5,
    }


def test_an_object_of_our_own_stays_one() -> None:
    """As drained events are, and what a GPU did since the last look."""
    events = [{"number": 1, "uuid": "GPU-1", "xid": ctypes.c_uint(79)}]
    assert plain(events) == [{"number": 1, "uuid": "GPU-1", "xid": 79}]
    assert plain({"seconds": 7.5, "metrics": {"2": 93.4}}) == {"seconds": 7.5, "metrics": {"2": 93.4}}


@each("value", [None, True, 7, 2**64 - 1, 0.25, "text"])
def test_a_plain_value_stays(value: object) -> None:
    assert plain(value) is value


def test_bytes_become_a_text_and_numbers_of_c_numbers() -> None:
    assert plain([b"GPU-\xff", ctypes.c_uint(3), (1, 2)]) == ["GPU-\ufffd", 3, [1, 2]]


def test_a_pointer_is_nothing() -> None:
    assert plain(ctypes.pointer(ctypes.c_int(1))) is None


@NO_NVML
def test_a_missing_library_is_reported_with_nvml_s_own_code() -> None:
    with pytest.raises(LibraryError, match=r"libnvidia-ml\.so\.1") as caught:
        Library()
    assert caught.value.code == 12


SM, DRAM, NVLINK = 2, 10, 60
LOST = 15


@dataclass
class Binding:
    """Stands for the binding on a machine with GPUs: a look at GPU `handle` copies how much it has done.

    The structures and errors are the binding's own.
    """

    done: dict[int, float] = field(default_factory=dict)
    offered: bool = True
    buffers: list[Any] = field(default_factory=list)
    broken: int | None = None
    unknown: int | None = None

    NVMLError = pynvml.NVMLError
    NVML_GPM_METRICS_GET_VERSION = pynvml.NVML_GPM_METRICS_GET_VERSION
    c_nvmlGpmMetricsGet_t = pynvml.c_nvmlGpmMetricsGet_t  # noqa: N815 - the binding's name

    def nvmlGpmQueryDeviceSupport(self, _handle: int) -> Any:  # noqa: N802
        support = pynvml.c_nvmlGpmSupport_t()
        support.isSupportedDevice = self.offered
        return support

    def nvmlGpmSampleAlloc(self) -> Any:  # noqa: N802
        self.buffers.append(ctypes.c_double())
        return ctypes.cast(ctypes.pointer(self.buffers[-1]), pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleGet(self, handle: int, sample: Any) -> None:  # noqa: N802
        if self.broken is not None:
            raise pynvml.NVMLError(self.broken)
        looked(sample).value = self.done[handle]

    def nvmlGpmMetricsGet(self, asked: Any) -> None:  # noqa: N802
        assert asked.version == 1
        for one in asked.metrics[: asked.numMetrics]:
            one.nvmlReturn = NOT_SUPPORTED if one.metricId == self.unknown else 0
            one.value = (looked(asked.sample2).value - looked(asked.sample1).value) * one.metricId


def looked(sample: Any) -> ctypes.c_double:
    return ctypes.cast(sample, ctypes.POINTER(ctypes.c_double)).contents


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def look(gpm: Gpm, gpu: int) -> dict[str, Any]:
    told = gpm.since_last(gpu, gpu, (SM, DRAM, NVLINK))
    assert isinstance(told, dict)
    return told


def refused(gpm: Gpm, gpu: int) -> int:
    with pytest.raises(pynvml.NVMLError) as error:
        look(gpm, gpu)
    return int(error.value.value)


def test_each_look_is_compared_with_the_one_before_of_the_same_gpu() -> None:
    binding, clock = Binding({1: 0.0, 2: 0.0}), Clock()
    gpm = Gpm(binding, clock)
    assert [refused(gpm, 1), refused(gpm, 2)] == [NOT_FOUND] * 2
    for turn in range(1, 6):
        binding.done = {1: binding.done[1] + turn, 2: binding.done[2] + 10.0}
        clock.seconds += turn
        metrics = {str(number): number * turn for number in (SM, DRAM, NVLINK)}
        assert look(gpm, 1) == {"seconds": turn, "metrics": metrics}
        assert look(gpm, 2) == {"seconds": turn, "metrics": {"2": 20.0, "10": 100.0, "60": 600.0}}
    assert len(binding.buffers) == 4


def test_a_gpu_that_offers_nothing_is_not_supported_and_takes_no_buffer() -> None:
    binding = Binding(offered=False)
    gpm = Gpm(binding)
    assert not gpm.supported(1)
    assert refused(gpm, 1) == NOT_SUPPORTED
    assert binding.buffers == []
    assert Gpm(Binding()).supported(1)
    once = Binding({1: 0.0})
    gpm = Gpm(once)
    assert refused(gpm, 1) == NOT_FOUND
    once.offered = False
    assert look(gpm, 1)["metrics"] == {"2": 0.0, "10": 0.0, "60": 0.0}


def test_a_gpu_that_is_lost_for_a_while_eats_no_memory_and_the_next_look_is_of_all_that_time() -> None:
    binding, clock = Binding({1: 1.0}), Clock()
    gpm = Gpm(binding, clock)
    assert refused(gpm, 1) == NOT_FOUND
    binding.broken = LOST
    for _ in range(50):
        clock.seconds += 1.0
        assert refused(gpm, 1) == LOST
    binding.broken, binding.done[1] = None, 3.0
    assert look(gpm, 1) == {"seconds": 50.0, "metrics": {"2": 4.0, "10": 20.0, "60": 120.0}}
    assert len(binding.buffers) == 2


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_metric_that_is_refused_or_no_number_is_left_out(number: float) -> None:
    binding = Binding({1: 0.0}, unknown=NVLINK)
    gpm = Gpm(binding)
    assert refused(gpm, 1) == NOT_FOUND
    binding.done[1] = 1.0
    assert set(look(gpm, 1)["metrics"]) == {"2", "10"}
    binding.done[1] = number
    assert look(gpm, 1)["metrics"] == {}


KIND = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG


@dataclass
class Counters:
    """A GPU whose counters grow by 100 and 200 with each read, of 50 ms each; `refused` by the read."""

    clock: Clock
    refused: dict[int, int] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)

    NVMLError = pynvml.NVMLError

    def nvmlDeviceGetFieldValues(self, _handle: int, wanted: list[Any]) -> Any:  # noqa: N802
        self.clock.seconds += 0.05
        self.asked.append(wanted)
        values = (pynvml.c_nvmlFieldValue_t * len(wanted))()
        for number, value in enumerate(values):
            value.valueType = KIND
            value.value.ullVal = 2**40 + len(self.asked) * 100 * (number + 1)
            value.nvmlReturn = self.refused.get(len(self.asked), 0)
        return values


def test_a_burst_is_reads_one_after_the_other_of_the_time_that_was_asked_for() -> None:
    clock = Clock()
    counters = Counters(clock)
    told = Bursts(counters, clock).read(1, (250, 138, 139))
    rows = [[50_000 * k, 100 * k, 200 * k] for k in range(6)]
    assert told == {"reads": rows}
    assert counters.asked == [[(138, ALL_LINKS), (139, ALL_LINKS)]] * 6


@pytest.mark.parametrize("code", [NOT_SUPPORTED, LOST])
@pytest.mark.parametrize("at", [1, 3])
def test_a_read_that_is_refused_ends_the_burst(code: int, at: int) -> None:
    clock = Clock()
    counters = Counters(clock, {at: code})
    with pytest.raises(pynvml.NVMLError) as error:
        Bursts(counters, clock).read(1, (250, 138))
    assert error.value.value == code
    assert len(counters.asked) == at


@each("args", [(0, 138), (-1, 138), (LONGEST_BURST + 1, 138), (250,), ("a", 138)])
def test_what_is_no_burst_is_not_begun(args: tuple[Any, ...]) -> None:
    counters = Counters(Clock())
    with pytest.raises(ValueError, match=r"not a burst|invalid literal"):
        Bursts(counters).read(1, args)
    assert counters.asked == []
