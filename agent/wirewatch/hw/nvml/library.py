"""The only importer of pynvml: questions in, plain values out. Runs in the child process."""

import ctypes
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from wirewatch.core.ports import ALL_LINKS, Answer, Question
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw.nvml.protocol import LibraryError, absent_code

_UNION = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
_PEER_CALLS = frozenset({"TopologyCommonAncestor", "P2PStatus"})
NOT_SUPPORTED, NOT_FOUND, _TIMEOUT, _FUNCTION_NOT_FOUND = 3, 6, 10, 13
_EVENTS_KEPT = 256
_BINDING_ERRORS = (TypeError, ValueError, AttributeError, LookupError, ctypes.ArgumentError)
Call = Callable[[Any, Question], Any]
"""Takes a device handle and a question, returns the binding's result."""


class Library:
    """NVML, initialised; raises LibraryError where it cannot be loaded or initialised."""

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}
        self._functions: dict[str, Call] = {}
        self._events: _Events | None = None
        gpm, bursts = Gpm(pynvml), Bursts(pynvml)
        self._special: dict[str, Call] = {
            "Events": self._drain,
            "Burst": lambda handle, q: bursts.read(handle, q.args),
            "GpmSince": lambda handle, q: gpm.since_last(_address(handle), handle, q.args),
            "GpmSupported": lambda handle, _q: gpm.supported(handle),
        }
        self.seconds = 0.0
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise LibraryError(int(error.value)) from error

    def answer(self, scope: str | None, questions: Sequence[Question]) -> list[Answer]:
        """Answers in order; `scope` is None for the system, `index:N` or a UUID for a GPU."""
        try:
            handle = None if scope is None else self._handle(scope)
        except pynvml.NVMLError as error:
            return [Answer(absent_code(int(error.value)))] * len(questions)
        fields = [q for q in questions if q.call == "Field"]
        values = self._fields(handle, fields) if fields else {}
        return [values[q] if q.call == "Field" else self._call(handle, q) for q in questions]

    def _handle(self, scope: str) -> Any:
        if scope not in self._handles:
            index = scope.removeprefix("index:")
            by_uuid, by_index = pynvml.nvmlDeviceGetHandleByUUID, pynvml.nvmlDeviceGetHandleByIndex
            self._handles[scope] = by_uuid(scope) if index == scope else by_index(int(index))
        return self._handles[scope]

    def _fields(self, handle: Any, questions: Sequence[Question]) -> dict[Question, Answer]:
        wanted = [q.args if len(q.args) > 1 else q.args[0] for q in questions]
        started = time.perf_counter()
        try:
            values = pynvml.nvmlDeviceGetFieldValues(handle, wanted)
        except pynvml.NVMLError as error:
            return dict.fromkeys(questions, Answer(absent_code(int(error.value))))
        finally:
            self.seconds += time.perf_counter() - started
        return dict(zip(questions, map(_field, values), strict=True))

    def _call(self, handle: Any, question: Question) -> Answer:
        function = self._functions.get(question.call)
        if function is None:
            function = self._functions[question.call] = self._function(question.call)
        started = time.perf_counter()
        try:
            value: Json | Absent = plain(function(handle, question))
        except pynvml.NVMLError as error:
            value = absent_code(int(error.value))
        except _BINDING_ERRORS as error:
            value = Absent(Why.MALFORMED, f"{question}: the binding failed: {error!r}")
        spent = time.perf_counter() - started
        self.seconds += spent
        return Answer(value, spent * 1e6)

    def _function(self, call: str) -> Call:
        special = _SPECIAL.get(call) or self._special.get(call)
        if special is not None:
            return special
        if call in _PEER_CALLS:
            return self._peer
        system = call.startswith("System")
        function = getattr(pynvml, f"nvml{call}" if system else f"nvmlDeviceGet{call}", None)
        if function is None:
            return _unknown
        if system or call == "Count":
            return lambda _handle, q: function(*q.args)
        return lambda handle, q: function(handle, *q.args)

    def _peer(self, handle: Any, question: Question) -> Any:
        other = self._handle(f"index:{question.args[0]}")
        return getattr(pynvml, f"nvmlDeviceGet{question.call}")(handle, other, *question.args[1:])

    def _drain(self, _handle: Any, _question: Question) -> Json:
        if self._events is None:
            self._events = _Events()
        return self._events.drain()


class _Events:
    """XID events of all GPUs since this was made, without waiting; NVMLError where no GPU has them."""

    def __init__(self) -> None:
        self._set = pynvml.nvmlEventSetCreate()
        self._drained: deque[Json] = deque(maxlen=_EVENTS_KEPT)
        self._number = 0
        # Asked now: a GPU that has fallen off the bus no longer gives its UUID.
        self._uuids: dict[int | None, Json] = {}
        wanted, refused = pynvml.nvmlEventTypeXidCriticalError, None
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                if pynvml.nvmlDeviceGetSupportedEventTypes(handle) & wanted:
                    pynvml.nvmlDeviceRegisterEvents(handle, wanted, self._set)
                    self._uuids[_address(handle)] = plain(pynvml.nvmlDeviceGetUUID(handle))
            except pynvml.NVMLError as error:
                refused = error
        if not self._uuids:
            pynvml.nvmlEventSetFree(self._set)
            raise refused or pynvml.NVMLError(NOT_SUPPORTED)

    def drain(self) -> Json:
        """The latest events, numbered from 1 since registration, so that none is counted twice."""
        for _ in range(_EVENTS_KEPT):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, 0)
            except pynvml.NVMLError as error:
                if int(error.value) == _TIMEOUT:
                    break
                raise
            self._number += 1
            uuid = self._uuids.get(_address(event.device), "")
            self._drained.append({"number": self._number, "uuid": uuid, "xid": int(event.eventData)})
        return list(self._drained)


_OTHER_VERSION = frozenset({2, 25})


class Gpm:
    """Metrics between two samples of a GPU, by NVML's GPM; two buffers a GPU, in turns."""

    def __init__(self, nvml: Any, mono: Callable[[], float] = time.monotonic) -> None:
        self._nvml, self._mono = nvml, mono
        self._kept: dict[int | None, tuple[Any, float]] = {}
        self._spare: dict[int | None, Any] = {}

    def supported(self, handle: Any) -> bool:
        """Return whether this GPU has GPM (Hopper and later); raises NVMLError, as by an old driver."""
        return bool(self._nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)

    def since_last(self, place: int | None, handle: Any, metrics: Sequence[int | str]) -> Json:
        """Return metrics (nvmlGpmMetricId_t) since the last sample of GPU `place`, and the seconds between.

        They are in per cent and MiB/s; metrics that this GPU does not offer are left out. Raises NVMLError:
        not supported, no earlier sample, or the GPU cannot be asked.
        """
        before = self._kept.get(place)
        if before is None and not self.supported(handle):
            raise self._nvml.NVMLError(NOT_SUPPORTED)
        if place not in self._spare:
            self._spare[place] = self._nvml.nvmlGpmSampleAlloc()
        # It stays the spare one until it holds a sample: a GPU that fails for hours must not eat buffers.
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
        found = [asked.metrics[place] for place in range(len(wanted))]
        good = (one for one in found if one.nvmlReturn == 0 and math.isfinite(one.value))
        return {str(one.metricId): float(one.value) for one in good}


LONGEST_BURST = 1000
"""Milliseconds: a question must end long before its deadline, and let NVML go for a release."""


class Bursts:
    """Counters of all links of a GPU, read back to back for a short time; `mono`: monotonic seconds."""

    def __init__(self, nvml: Any, mono: Callable[[], float] = time.monotonic) -> None:
        self._nvml, self._mono = nvml, mono

    def read(self, handle: Any, args: Sequence[int | str]) -> Json:
        """Return rows of one read each: microseconds, and the growth of each counter, since the first.

        `args` are milliseconds and fields. The time is that of the end of a read, the nearest to the
        counters' own. Raises ValueError for other arguments, and NVMLError, which loses all readings.
        """
        milliseconds, *fields = (int(one) for one in args)
        if not (0 < milliseconds <= LONGEST_BURST and fields):
            raise ValueError(f"not a burst: {args!r}")
        wanted = [(field, ALL_LINKS) for field in fields]
        first, began = self._counters(handle, wanted), self._mono()
        rows: list[list[int]] = [[0] * (len(fields) + 1)]
        while rows[-1][0] < milliseconds * 1000:
            counters = self._counters(handle, wanted)
            grown = [now - before for now, before in zip(counters, first, strict=True)]
            rows.append([round((self._mono() - began) * 1e6), *grown])
        return {"reads": rows}

    def _counters(self, handle: Any, wanted: list[tuple[int, int]]) -> list[int]:
        values = self._nvml.nvmlDeviceGetFieldValues(handle, wanted)
        refused = next((value.nvmlReturn for value in values if value.nvmlReturn != 0), None)
        if refused is not None:
            raise self._nvml.NVMLError(refused)
        return [int(getattr(value.value, _UNION[value.valueType])) for value in values]


def plain(value: Any) -> Json:
    """A pynvml result as JSON: structures become objects, byte arrays hexadecimal, pointers nothing."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, ctypes.Structure):
        return {field[0]: plain(getattr(value, field[0])) for field in value._fields_}
    if isinstance(value, ctypes.Array) and getattr(value, "_type_", None) is ctypes.c_ubyte:
        return bytes(value).hex()
    if isinstance(value, list | tuple | ctypes.Array):
        return [plain(item) for item in value]
    return _members(value)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _field(value: Any) -> Answer:
    if value.nvmlReturn != 0:
        return Answer(absent_code(int(value.nvmlReturn)), float(value.latencyUsec))
    member = _UNION.get(value.valueType)
    if member is None:
        return Answer(absent_code(999), float(value.latencyUsec))
    return Answer(plain(getattr(value.value, member)), float(value.latencyUsec))


def _members(value: Any) -> Json:
    """Return a simple C value as it is, or the members of an object of ours or of pynvml's."""
    if isinstance(value, ctypes._SimpleCData):  # noqa: SLF001
        return plain(value.value)
    members = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    return {str(name): plain(member) for name, member in members.items()} if members else None


def _unknown(_handle: Any, _question: Question) -> Any:
    raise pynvml.NVMLError(_FUNCTION_NOT_FOUND)


def _fabric(handle: Any, _question: Question) -> Any:
    """Fabric information in the newest version that this driver and binding share."""
    for version in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        structure = getattr(pynvml, version, None)
        if structure is None:
            continue
        info = structure()
        try:
            pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        except pynvml.NVMLError as error:
            if int(error.value) in _OTHER_VERSION:
                continue
            raise
        return info
    raise pynvml.NVMLError(_FUNCTION_NOT_FOUND)


def _sram(handle: Any, _question: Question) -> Any:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return status


def _getters(_handle: Any, _question: Question) -> list[str]:
    """Names of all getters of this binding that can be called with a device and nothing else."""
    names = []
    for name in dir(pynvml):
        if not name.startswith("nvmlDeviceGet") or "Handle" in name:
            continue
        function = getattr(pynvml, name)
        function = getattr(function, "__wrapped__", function)
        if function.__code__.co_argcount - len(function.__defaults__ or ()) == 1:
            names.append(name.removeprefix("nvmlDeviceGet"))
    return names


_SPECIAL: dict[str, Call] = {"GpuFabricInfoV": _fabric, "SramEccErrorStatus": _sram, "Getters": _getters}
