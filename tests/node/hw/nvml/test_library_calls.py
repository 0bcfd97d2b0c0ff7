"""NVML's library over a binding that is drawn by hand: which function a question calls."""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.rows import each
from wirewatch.core.ports import ALL_LINKS, Answer, Question
from wirewatch.core.types import Absent, Why
from wirewatch.hw.nvml import library
from wirewatch.hw.nvml.library import Library, plain
from wirewatch.hw.nvml.protocol import LibraryError, absent_code

LOST, TIMEOUT, NO_FUNCTION = 15, 10, 13
U64, F64 = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, pynvml.NVML_VALUE_TYPE_DOUBLE


class Binding:
    """Two GPUs; structures, constants and errors are pynvml's own, and so is what a test does not name."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        self.called: list[Any] = []
        self.given = functions

    def __getattr__(self, name: str) -> Any:
        if name in self.given:
            return self.given[name]
        if name.startswith("nvml") and not hasattr(pynvml, name):
            raise AttributeError(name)
        return getattr(pynvml, name)

    def nvmlInit(self) -> None:  # noqa: N802
        self.called.append("init")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:  # noqa: N802
        self.called.append(uuid)
        return ctypes.c_void_p(100 + int(uuid.removeprefix("GPU-")))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        self.called.append(index)
        return ctypes.c_void_p(100 + index)

    def nvmlDeviceGetName(self, handle: Any) -> bytes:  # noqa: N802
        return b"H200 %d" % (handle.value - 100)

    def nvmlDeviceGetTemperature(self, _handle: Any, sensor: int) -> int:  # noqa: N802
        return 40 + sensor

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.1"

    def nvmlDeviceGetPowerUsage(self, _handle: Any) -> int:  # noqa: N802
        raise pynvml.NVMLError(LOST)

    def nvmlDeviceGetFanSpeed(self, _handle: Any) -> int:  # noqa: N802
        raise TypeError("no such argument")

    def nvmlDeviceGetP2PStatus(self, handle: Any, other: Any, kind: int) -> list[int]:  # noqa: N802
        return [handle.value, other.value, kind]

    def nvmlDeviceGetUUID(self, handle: Any) -> str:  # noqa: N802
        return f"GPU-{handle.value - 100}"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Library, Binding]]:
    def make(**functions: Callable[..., Any]) -> tuple[Library, Binding]:
        binding = Binding(**functions)
        monkeypatch.setattr(library, "pynvml", binding)
        return Library(), binding

    return make


Opened = Callable[..., tuple[Library, Binding]]


def values(here: Library, scope: str | None, *questions: Question) -> list[object]:
    return [one.value for one in here.answer(scope, questions)]


def raising(code: int) -> Callable[..., Any]:
    def function(*_: object) -> Any:
        raise pynvml.NVMLError(code)

    return function


def test_a_library_that_does_not_start_says_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    binding = Binding()
    monkeypatch.setattr(library, "pynvml", binding)
    monkeypatch.setattr(binding, "nvmlInit", raising(9), raising=False)
    with pytest.raises(LibraryError) as error:
        Library()
    assert error.value.code == 9


@pytest.mark.parametrize(
    ("scope", "question", "value"),
    [
        ("index:1", Question("Name"), "H200 1"),
        ("GPU-0", Question("Name"), "H200 0"),
        ("index:1", Question("Temperature", (1,)), 41),
        (None, Question("Count"), 2),
        (None, Question("SystemGetDriverVersion"), "580.1"),
        ("index:1", Question("P2PStatus", (0, 3)), [101, 100, 3]),
        ("index:1", Question("PowerUsage"), absent_code(LOST)),
        ("index:1", Question("NoSuchCall"), absent_code(NO_FUNCTION)),
        (None, Question("SystemNoSuchCall"), absent_code(NO_FUNCTION)),
    ],
)
def test_a_question_calls_its_function(
    opened: Opened, scope: str | None, question: Question, value: object
) -> None:
    here, _ = opened()
    assert values(here, scope, question) == [value]


def test_what_the_binding_refuses_is_malformed_and_named(opened: Opened) -> None:
    here, _ = opened()
    (found,) = values(here, "index:0", Question("FanSpeed"))
    assert isinstance(found, Absent)
    assert (found.why, found.detail) == (
        Why.MALFORMED, "FanSpeed(): the binding failed: TypeError('no such argument')"
    )  # fmt: skip


def test_a_gpu_is_looked_up_once_and_calls_take_their_time(opened: Opened) -> None:
    here, binding = opened()
    before = here.seconds
    answers = here.answer("index:1", [Question("Name"), Question("Name")])
    here.answer("GPU-1", [Question("Name")])
    here.answer("index:1", [Question("Name")])
    assert binding.called == ["init", 1, "GPU-1"]
    assert all(one.us > 0 for one in answers)
    assert here.seconds - before >= sum(one.us for one in answers) * 0.99e-6


def test_a_gpu_that_is_not_there_answers_nothing(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    here, binding = opened()
    monkeypatch.setattr(binding, "nvmlDeviceGetHandleByIndex", raising(6))
    assert values(here, "index:7", Question("Name"), Question("Field", (1,))) == [absent_code(6)] * 2


def fields(*codes: int) -> tuple[Callable[..., Any], list[Any]]:
    asked: list[Any] = []

    def read(_handle: Any, wanted: list[Any]) -> Any:
        asked.append(wanted)
        made = (pynvml.c_nvmlFieldValue_t * len(wanted))()
        for number, one in enumerate(made):
            one.nvmlReturn, one.latencyUsec = codes[number], 5
            one.valueType = U64 if number < 2 else F64 if number == 2 else 99
            if number < 2:
                one.value.ullVal = 2**40 + number
            else:
                one.value.dVal = 0.5
        return made

    return read, asked


def test_fields_are_read_in_one_call_and_stand_in_their_places(opened: Opened) -> None:
    read, asked = fields(0, 3, 0, 0)
    here, _ = opened(nvmlDeviceGetFieldValues=read)
    before = here.seconds
    found = here.answer(
        "index:0",
        [Question("Field", (138, ALL_LINKS)), Question("Name"), Question("Field", (82,)),
         Question("Field", (91,)), Question("Field", (92,))],
    )  # fmt: skip
    assert asked == [[(138, ALL_LINKS), 82, 91, 92]]
    assert [one.value for one in found] == [2**40, "H200 0", absent_code(3), 0.5, absent_code(999)]
    assert [found[place].us for place in (0, 2, 3, 4)] == [5.0] * 4
    assert here.seconds > before
    assert values(here, "index:0", Question("Name")) == ["H200 0"]
    assert len(asked) == 1
    before = here.seconds
    here.answer("index:0", [Question("Field", (138,))])
    assert here.seconds > before


def test_fields_that_are_refused_as_a_whole_are_all_absent(opened: Opened) -> None:
    here, _ = opened(nvmlDeviceGetFieldValues=raising(LOST))
    before = here.seconds
    assert values(here, "index:0", Question("Field", (1,)), Question("Name")) == [absent_code(LOST), "H200 0"]
    assert here.seconds > before


def filled(reference: Any) -> Any:
    """The structure that a reference leads to, as the driver fills it."""
    return reference._obj  # noqa: SLF001


FABRICS = ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t")


@pytest.mark.parametrize(
    ("why", "refused", "version"),
    [
        ("the newest", {}, 0),
        ("an older driver", {0: 25}, 1),
        ("an argument that it does not know", {0: 2}, 1),
        ("no version in common", {0: 25, 1: 25}, absent_code(NO_FUNCTION)),
        ("another refusal", {0: LOST}, absent_code(LOST)),
    ],
)
def test_the_fabric_is_asked_in_the_newest_version_that_both_have(
    opened: Opened, why: str, refused: dict[int, int], version: int | Absent
) -> None:
    tried: list[int] = []

    def ask(_handle: Any, info: Any) -> None:
        place = [getattr(pynvml, name) for name in FABRICS].index(type(filled(info)))
        tried.append(place)
        if place in refused:
            raise pynvml.NVMLError(refused[place])
        filled(info).state = 3

    here, _ = opened(nvmlDeviceGetGpuFabricInfoV=ask)
    (found,) = values(here, "index:0", Question("GpuFabricInfoV"))
    if isinstance(version, Absent):
        assert found == version, why
    else:
        assert isinstance(found, dict)
        assert (found["state"], tried[-1]) == (3, version), why


def test_a_binding_without_the_newest_fabric_structure_takes_the_older_one(opened: Opened) -> None:
    here, binding = opened(
        nvmlDeviceGetGpuFabricInfoV=lambda _handle, info: setattr(filled(info), "state", 2)
    )
    binding.given[FABRICS[0]] = None  # type: ignore[assignment]
    (found,) = values(here, "index:0", Question("GpuFabricInfoV"))
    assert isinstance(found, dict)
    assert found["state"] == 2


def test_errors_of_the_sram_are_a_structure_that_the_driver_fills(opened: Opened) -> None:
    def fill(_handle: Any, status: Any) -> None:
        filled(status).aggregateUncSecDed = 7

    here, _ = opened(nvmlDeviceGetSramEccErrorStatus=fill)
    (found,) = values(here, "index:0", Question("SramEccErrorStatus"))
    assert isinstance(found, dict)
    assert found["aggregateUncSecDed"] == 7


def test_getters_are_those_that_take_a_device_and_nothing_else() -> None:
    found = library._getters(None, Question("Getters"))  # noqa: SLF001
    assert {"Name", "UUID", "Serial", "PowerUsage", "MemoryInfo", "ModuleId"} <= set(found)
    assert not {"Temperature", "HandleByIndex", "HandleByUUID", "Count"} & set(found)
    assert not [name for name in found if name.startswith("nvml")]


def test_what_is_special_is_not_a_function_of_the_binding(opened: Opened) -> None:
    support = SimpleNamespace(isSupportedDevice=1)
    here, _ = opened(nvmlGpmQueryDeviceSupport=lambda _handle: support)
    assert values(here, "index:0", Question("GpmSupported")) == [True]
    here, _ = opened(nvmlGpmQueryDeviceSupport=lambda _handle: SimpleNamespace(isSupportedDevice=0))
    assert values(here, "index:0", Question("GpmSupported"), Question("GpmSince", (2,))) == [
        False, absent_code(3),
    ]  # fmt: skip
    (found,) = values(here, "index:0", Question("Burst", (1001, 138)))
    assert isinstance(found, Absent)
    assert "not a burst" in found.detail


class Events:
    """What NVML's event set does: `waiting` events by GPU and XID, and which GPUs have any."""

    def __init__(
        self, *, has: tuple[int, ...] = (0, 1), refuses: tuple[int, ...] = (), ends: int = TIMEOUT
    ) -> None:
        self.waiting: list[tuple[int, int]] = []
        self.has, self.refuses, self.ends = has, refuses, ends
        self.registered: list[int] = []
        self.freed = 0

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvmlEventSetCreate": lambda: "set",
            "nvmlEventSetFree": self.free,
            "nvmlDeviceGetSupportedEventTypes": self.supported,
            "nvmlDeviceRegisterEvents": self.register,
            "nvmlEventSetWait_v2": self.wait,
        }

    def free(self, _set: object) -> None:
        self.freed += 1

    def supported(self, handle: Any) -> int:
        if handle.value - 100 in self.refuses:
            raise pynvml.NVMLError(LOST)
        return pynvml.nvmlEventTypeXidCriticalError if handle.value - 100 in self.has else 0

    def register(self, handle: Any, wanted: int, events: object) -> None:
        assert (wanted, events) == (pynvml.nvmlEventTypeXidCriticalError, "set")
        self.registered.append(handle.value - 100)

    def wait(self, events: object, timeout: int) -> Any:
        assert (events, timeout) == ("set", 0)
        if not self.waiting:
            raise pynvml.NVMLError(self.ends)
        gpu, xid = self.waiting.pop(0)
        return SimpleNamespace(device=ctypes.c_void_p(100 + gpu), eventData=xid)


def test_events_are_numbered_since_the_first_look_and_kept(opened: Opened) -> None:
    events = Events()
    here, _ = opened(**events.functions())
    assert values(here, None, Question("Events")) == [[]]
    assert (events.registered, events.freed) == ([0, 1], 0)
    events.waiting = [(1, 79), (9, 48)]
    told = [{"number": 1, "uuid": "GPU-1", "xid": 79}, {"number": 2, "uuid": "", "xid": 48}]
    assert values(here, None, Question("Events")) == [told]
    events.waiting = [(0, 31)]
    assert values(here, None, Question("Events")) == [[*told, {"number": 3, "uuid": "GPU-0", "xid": 31}]]
    assert events.registered == [0, 1]


def test_of_a_flood_of_events_the_newest_are_kept_and_one_look_ends(opened: Opened) -> None:
    events = Events()
    here, _ = opened(**events.functions())
    events.waiting = [(0, xid) for xid in range(300)]
    (found,) = values(here, None, Question("Events"))
    assert isinstance(found, list)
    assert (len(found), found[-1]) == (256, {"number": 256, "uuid": "GPU-0", "xid": 255})
    (found,) = values(here, None, Question("Events"))
    assert isinstance(found, list)
    assert (len(found), found[0], found[-1]["number"]) == (
        256, {"number": 45, "uuid": "GPU-0", "xid": 44}, 300,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("why", "events", "registered", "answer"),
    [
        ("one GPU has none", Events(has=(1,)), [1], []),
        ("one GPU refuses", Events(refuses=(0,)), [1], []),
        ("none has any", Events(has=()), [], absent_code(3)),
        ("all refuse", Events(refuses=(0, 1)), [], absent_code(LOST)),
        ("the wait fails", Events(ends=LOST), [0, 1], absent_code(LOST)),
    ],
)
def test_events_are_of_the_gpus_that_have_them(
    opened: Opened, why: str, events: Events, registered: list[int], answer: object
) -> None:
    here, _ = opened(**events.functions())
    assert values(here, None, Question("Events")) == [answer], why
    assert events.registered == registered
    assert events.freed == (not registered)


class Bytes(ctypes.Structure):
    """As NVML has bytes that are no text, numbers and texts."""

    _fields_ = (("raw", ctypes.c_ubyte * 2), ("many", ctypes.c_uint * 2))


@each(
    ("value", "told"),
    [
        (Bytes((1, 255), (7, 8)), {"raw": "01ff", "many": [7, 8]}),
        (ctypes.c_uint(7), 7),
        (SimpleNamespace(a=b"x", b=[ctypes.c_int(1)]), {"a": "x", "b": [1]}),
        (SimpleNamespace(), None),
        ({"a": 1}, {"a": 1}),
        ({}, None),
        (object(), None),
        (None, None),
        (ctypes.pointer(ctypes.c_ubyte(1)), None),
    ],
)
def test_what_the_binding_returns_becomes_plain(value: object, told: object) -> None:
    assert plain(value) == told


def test_an_answer_without_a_time_is_one_of_its_own() -> None:
    assert Answer(1).us == 0.0
