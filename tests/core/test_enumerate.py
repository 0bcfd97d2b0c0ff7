"""Which GPUs are there."""

from collections.abc import Sequence

import pytest

from wirewatch.core.nvml import COUNT, count_gpus, identify
from wirewatch.core.ports import Answer, Gpu, Question
from wirewatch.core.types import Absent, Json, Why

LOST = Absent(Why.LOST, "fallen off the bus", 15)


class Node:
    """Three GPUs; `broken` holds answers that a GPU gives instead of its own."""

    def __init__(self) -> None:
        self.broken: dict[tuple[int, str], Json | Absent] = {}

    def ask(self, scope: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        if scope is None:
            assert list(questions) == [COUNT]
            return [Answer(3)]
        index = int(scope.removeprefix("index:"))
        return [Answer(self.broken.get((index, q.call), self._own(index, q.call))) for q in questions]

    def lose(self, index: int) -> None:
        self.broken |= {(index, call): LOST for call in ("UUID", "PciInfo", "Name")}

    def gpus(self, known: Sequence[Gpu] = ()) -> list[Gpu]:
        count = count_gpus(self.ask)
        assert isinstance(count, int)
        return [identify(self.ask, i, known[i] if known else None) for i in range(count)]

    @staticmethod
    def _own(index: int, call: str) -> Json:
        values: dict[str, Json] = {
            "UUID": f"GPU-{index}",
            "PciInfo": {"busId": f"00000000:{0x1B + index:02X}:00.0"},
            "Name": "NVIDIA H200",
        }
        return values[call]


def test_every_gpu_tells_its_uuid_its_name_and_its_address_as_the_kernel_writes_it() -> None:
    assert Node().gpus() == [
        Gpu(0, "GPU-0", "0000:1b:00.0", "NVIDIA H200"),
        Gpu(1, "GPU-1", "0000:1c:00.0", "NVIDIA H200"),
        Gpu(2, "GPU-2", "0000:1d:00.0", "NVIDIA H200"),
    ]


def test_a_lost_gpu_in_the_middle_hides_no_other_and_keeps_its_known_name() -> None:
    node = Node()
    before = node.gpus()
    node.lose(1)
    now = node.gpus(before)
    assert [g.key for g in now] == ["GPU-0", "GPU-1", "GPU-2"]
    assert [g.pci for g in now] == [g.pci for g in before]
    assert [g.absent for g in now] == [None, LOST, None]


def test_a_gpu_lost_from_the_first_look_on_goes_by_its_index() -> None:
    node = Node()
    node.lose(1)
    gpu = node.gpus()[1]
    assert gpu.key == "index:1"
    assert gpu.absent == LOST


def test_a_gpu_that_answers_again_is_not_lost_any_more() -> None:
    node = Node()
    node.lose(1)
    lost = node.gpus()
    node.broken.clear()
    assert node.gpus(lost) == Node().gpus()


def test_another_gpu_in_the_same_place_is_another_gpu() -> None:
    node = Node()
    before = node.gpus()
    node.broken[1, "UUID"] = "GPU-new"
    assert node.gpus(before)[1].key == "GPU-new"


@pytest.mark.parametrize(
    ("told", "kernel"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1B:00.0", "0000:1b:00.0"),
        ("0000000A:AF:10.1", "000a:af:10.1"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("", ""),
        ("nonsense", ""),
        ("xyz:00:00.0", ""),
        (7, ""),
    ],
)
def test_a_pci_address_is_normalised_and_nonsense_is_none(told: Json, kernel: str) -> None:
    node = Node()
    node.broken[0, "PciInfo"] = {"busId": told}
    assert node.gpus()[0].pci == kernel


@pytest.mark.parametrize("told", [None, [], "text", LOST])
def test_a_gpu_without_a_readable_address_is_still_a_gpu(told: Json | Absent) -> None:
    node = Node()
    node.broken[0, "PciInfo"] = told
    assert node.gpus()[0] == Gpu(0, "GPU-0", "", "NVIDIA H200")


@pytest.mark.parametrize("count", [LOST, "8", True, None])
def test_a_count_that_is_no_number_is_absent(count: Json | Absent) -> None:
    told = count_gpus(lambda _scope, _questions: [Answer(count)])
    assert isinstance(told, Absent)


def test_an_address_and_a_name_that_cannot_be_read_now_are_taken_from_when_they_were() -> None:
    node = Node()
    before = node.gpus()
    slow = Absent(Why.TIMEOUT, "the driver timed out", 10)
    node.broken |= {(1, "PciInfo"): slow, (1, "Name"): slow}
    assert node.gpus(before)[1] == before[1]
