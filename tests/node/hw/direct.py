"""The NVML port answered by a recording in this process: what a child would say, without one."""

from collections.abc import Sequence

from tests.node.core.questions import parse_question
from wirewatch.core.nvml import count_gpus, identify
from wirewatch.core.ports import Answer, Gpu, NvmlCost, Question
from wirewatch.core.types import Absent
from wirewatch.hw.overlay import Player, ReplayNvml


class DirectNvml:
    """Implements `core.ports.Nvml`; `asked` counts the questions so far."""

    def __init__(self, player: Player) -> None:
        self._nvml = ReplayNvml(player)
        self._getters = _getters(player)
        self.asked = 0

    def session(self) -> int:
        return 1

    def gpus(self) -> Sequence[Gpu] | Absent:
        count = count_gpus(self.ask)
        if isinstance(count, Absent):
            return count
        return tuple(identify(self.ask, index, None) for index in range(count))

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        self.asked += len(questions)
        if list(questions) == [Question("Getters")]:
            return [Answer(self._getters)]
        return self._nvml.answer(gpu, questions)

    def seek(self) -> None:
        pass

    def cost(self) -> NvmlCost:
        return NvmlCost(None, self._nvml.seconds, 0, 0)


def _getters(player: Player) -> list[str]:
    """The calls without arguments that the recorded driver knew of a GPU."""
    texts = (question for port, question in player.recording.answers if port == "nvml")
    own = (parse_question(t.removeprefix("gpu0/")) for t in texts if t.startswith("gpu0/"))
    return sorted(q.call for q in own if not q.args)
