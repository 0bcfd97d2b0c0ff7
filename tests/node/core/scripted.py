"""An NVML port that answers from a table, and remembers what it was asked."""

from collections.abc import Mapping, Sequence

from wirewatch.core.ports import Answer, Gpu, NvmlCost, Question
from wirewatch.core.types import Absent, Json, Why


class ScriptedNvml:
    """Answers every GPU alike; what is not in the table is unsupported. `number` is the session's."""

    def __init__(self, table: Mapping[Question, Json | Absent]) -> None:
        self.table = dict(table)
        self.number = 1
        self.asked: list[tuple[Question, ...]] = []

    def session(self) -> int:
        return self.number

    def gpus(self) -> Sequence[Gpu] | Absent:
        return (Gpu(0, "GPU-0"),)

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        assert gpu == "GPU-0"
        self.asked.append(tuple(questions))
        missing = Absent(Why.UNSUPPORTED, "not supported by this device", 3)
        return [Answer(self.table.get(q, missing)) for q in questions]

    def seek(self) -> None:
        pass

    def cost(self) -> NvmlCost:
        return NvmlCost(None, 0.0, 0, 0)
