"""Everything that can be asked of NVML without changing anything: what a recording holds.

Not only what today's collectors ask, so that a recording of today serves a collector of next year.
"""

from collections.abc import Sequence

from wirewatch.core.ports import ALL_LINKS, Question

SYSTEM = tuple(
    Question(call)
    for call in (
        "Count", "SystemGetDriverVersion", "SystemGetNVMLVersion", "SystemGetCudaDriverVersion_v2", "Events",
    )
)  # fmt: skip
FIELDS = range(1, 308)
LINK_FIELDS = (*range(138, 142), 146, *range(161, 168), *range(201, 224), *range(231, 251), *range(289, 297))
_COUNTS = {
    "Temperature": (1,),
    "TemperatureThreshold": (8,),
    "ClockInfo": (4,),
    "MaxClockInfo": (4,),
    "TotalEccErrors": (2, 2),
    "MemoryErrorCounter": (2, 2, 8),
    "ViolationStatus": (6,),
    "PcieThroughput": (2,),
}
"""Calls with arguments, and how many values each argument has, from 0 on."""
_LINK_CALLS = {
    "NvLinkState": (),
    "NvLinkVersion": (),
    "NvLinkRemotePciInfo": (),
    "NvLinkRemoteDeviceType": (),
}
_LINK_COUNTS = {"NvLinkCapability": 6, "NvLinkErrorCounter": 5}
_SKIPPED = frozenset(
    {
        "Count",
        "VgpuMetadata",
        "VgpuSchedulerLog",
        "FieldValues",
        # Stops the caller for 70 ms and says nothing about wires.
        "InforomConfigurationChecksum",
    }
)


def gpu_questions(getters: Sequence[str], gpus: int, links: int) -> list[Question]:
    """The whole catalogue for one GPU with `links` links, of a node with `gpus` GPUs.

    One link more is asked for than there are, so that the end is recorded too.
    """
    questions = [Question(name) for name in getters if name not in _SKIPPED]
    questions += [Question("GpuFabricInfoV"), Question("SramEccErrorStatus")]
    for call, counts in _COUNTS.items():
        questions += [Question(call, args) for args in _product(counts)]
    for link in range(links + 1):
        questions += [Question(call, (link,)) for call in _LINK_CALLS]
        questions += [Question(c, (link, n)) for c, count in _LINK_COUNTS.items() for n in range(count)]
    for other in range(gpus):
        questions += [Question("TopologyCommonAncestor", (other,))]
        questions += [Question("P2PStatus", (other, index)) for index in range(6)]
    questions += [Question("Field", (number,)) for number in FIELDS]
    scopes = (*range(links + 1), ALL_LINKS)
    questions += [Question("Field", (number, scope)) for number in LINK_FIELDS for scope in scopes]
    return questions


def _product(counts: Sequence[int]) -> list[tuple[int, ...]]:
    if not counts:
        return [()]
    return [(first, *rest) for first in range(counts[0]) for rest in _product(counts[1:])]
