"""What everybody who asks about NVLink needs: how many links a GPU has, and which of their states are up."""

from functools import cache

from wirewatch.core.asking import as_int
from wirewatch.core.ports import Nvml, Question
from wirewatch.core.types import Absent

LINK_COUNT = Question("Field", (91,))
OLD_LINKS = 18
"""Links that are asked for where a driver does not tell how many there are."""
UP = frozenset({1, 2})
"""Active and asleep, as NVML numbers link states."""


def count_links(nvml: Nvml, gpu: str) -> int:
    count = as_int(nvml.ask(gpu, [LINK_COUNT])[0].value)
    return OLD_LINKS if isinstance(count, Absent) else count


@cache
def state(link: int) -> Question:
    return Question("Field", (165, link))


@cache
def old_state(link: int) -> Question:
    """The same from drivers that have no such field."""
    return Question("NvLinkState", (link,))
