"""Which GPUs are there, asked index by index so that a lost one does not hide the others."""

from collections.abc import Callable, Sequence

from wirewatch.core.asking import as_int, as_str, member
from wirewatch.core.pci import normal_pci
from wirewatch.core.ports import Answer, Gpu, Question
from wirewatch.core.types import Absent, Json

Ask = Callable[[str | None, Sequence[Question]], Sequence[Answer]]

COUNT = Question("Count")
IDENTITY = (Question("UUID"), Question("PciInfo"), Question("Name"))


def count_gpus(ask: Ask) -> int | Absent:
    return as_int(ask(None, [COUNT])[0].value)


def identify(ask: Ask, index: int, known: Gpu | None) -> Gpu:
    """The GPU at an index; what it does not tell now is taken from when it last did."""
    uuid, pci, name = (a.value for a in ask(f"index:{index}", IDENTITY))
    told = as_str(uuid)
    last = known or Gpu(index, "")
    if isinstance(told, Absent):
        return Gpu(index, last.uuid, last.pci, last.name, told)
    same = last if last.uuid == told else Gpu(index, told)
    return Gpu(index, told, normal_pci(_text(member(pci, "busId"))) or same.pci, _text(name) or same.name)


def _text(value: Json | Absent) -> str:
    text = as_str(value)
    return "" if isinstance(text, Absent) else text
