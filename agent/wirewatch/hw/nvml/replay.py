"""NVML of a recording in play: a module of its own, since the child that answers needs little more."""

from collections.abc import Sequence

from wirewatch.core.ports import Answer, Question
from wirewatch.hw.nvml.protocol import GPU_IS_LOST, absent_code
from wirewatch.hw.overlay import Player
from wirewatch.hw.recording import Recording


class ReplayNvml:
    """Answers the NVML child's questions from a recording, in which GPUs go by index."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._named = _names(player.recording)
        self.seconds = 0.0

    def answer(self, scope: str | None, questions: Sequence[Question]) -> list[Answer]:
        prefix = "" if scope is None else self._prefix(scope)
        if prefix is None:
            return [Answer(absent_code(GPU_IS_LOST))] * len(questions)
        answers = [self._player.answer(("nvml", f"{prefix}{q}")) for q in questions]
        self.seconds += sum(a.us for a in answers) * 1e-6
        return answers

    def _prefix(self, scope: str) -> str | None:
        index = scope.removeprefix("index:")
        return f"gpu{index}/" if index != scope else self._named.get(scope)


def _names(recording: Recording) -> dict[str, str]:
    """UUIDs to the prefix of their GPU's questions."""
    uuids = {k[1]: v for k, v in recording.answers.items() if k[0] == "nvml" and k[1].endswith("/UUID()")}
    return {str(a.value): q.removesuffix("UUID()") for q, answers in uuids.items() for _, a in answers}
