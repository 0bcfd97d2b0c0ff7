"""How parts and lists are called in sentences for people."""

import re
from collections.abc import Iterable, Sequence

from wirewatch.core.topology import SWITCH
from wirewatch.verdict.drift.graph import GpuNode, Graph, NicNode, Node, Unknown

_DIGITS = re.compile(r"(\d+)", re.ASCII)
_RUN = 3
"""So many numbers in a row are written as a range."""


def natural(text: str) -> tuple[str, ...]:
    """A key to sort by, in which mlx5_10 comes after mlx5_9."""
    return tuple(piece.zfill(12) if piece.isdigit() else piece for piece in _DIGITS.split(text))


def part_name(part: Node) -> str:
    """`GPU 3 (...0003)`, with the end of its UUID; `mlx5_4`."""
    if isinstance(part, NicNode):
        return part.device
    return f"GPU {part.index} (...{part.uuid[-4:]})" if part.uuid else f"GPU {part.index}"


def peer_name(key: str, gpus: Iterable[GpuNode]) -> str:
    """What is at the other end of a link."""
    if key == SWITCH:
        return "the switch"
    return next((part_name(gpu) for gpu in gpus if gpu.key == key), key)


def numbers(values: Iterable[int], comma: str = ", ") -> str:
    """`0-3, 7`."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    told = (
        [f"{run[0]}-{run[-1]}"] if len(run) >= _RUN else [str(value) for value in run]
        for run in runs
    )  # fmt: skip
    return comma.join(text for texts in told for text in texts)


def links(values: Sequence[int]) -> str:
    """`link 7`, `links 0-3, 7`."""
    return f"link{'' if len(values) == 1 else 's'} {numbers(values)}"


def several(parts: Sequence[Node]) -> str:
    """Parts in the middle of a sentence: `GPU 4`, `GPUs 1-3`, `mlx5_0, mlx5_1`."""
    indexes = [part.index for part in parts if isinstance(part, GpuNode)]
    gpus = [f"GPU{'' if len(indexes) == 1 else 's'} {numbers(indexes)}"] if indexes else []
    nics = sorted((part.device for part in parts if isinstance(part, NicNode)), key=natural)
    return ", ".join([*gpus, *nics])


def unknown_text(graph: Graph, unknown: Unknown) -> str:
    """`GPU 3 (...0003): NVLink links`."""
    parts = {part.key: part_name(part) for part in graph.parts}
    if not unknown.part and unknown.part not in parts:
        return f"node: {unknown.what}"
    return f"{parts.get(unknown.part, unknown.part)}: {unknown.what}"
