"""How long the machine may keep us waiting, and how much is read of it: a change of any is meant."""

from types import ModuleType

from tests.rows import each
from wirewatch.cli import orders
from wirewatch.hw import command, files, kubelet, overlay, replay, slurm
from wirewatch.hw.nvml import child, client, library, process


@each(
    ("module", "limits"),
    [
        (command, {"DEADLINE": 5.0, "KILL_WAIT": 0.5, "LIMIT": 1 << 20}),
        (files, {"LIMIT": 1 << 16, "KEPT": 4096, "_RECORD_BYTES": 8192}),
        (kubelet, {"DEADLINE": 10.0, "LIMIT": 16 << 20}),
        (overlay, {"HURRY": 20.0}),
        (replay, {"_POLL": 0.02}),
        (slurm, {"DEADLINE": 20.0}),
        (child, {"LAST_WORDS": 0.5}),
        (client, {"GRACE": 0.3}),
        (library, {"_EVENTS_KEPT": 256, "LONGEST_BURST": 1000}),
        (process, {"KILL_WAIT": 1.0, "PIPE": 1 << 16, "_AGAIN": 0.05}),
    ],
)
def test_what_the_machine_may_take(module: ModuleType, limits: dict[str, float]) -> None:
    assert {name: getattr(module, name) for name in limits} == limits


def test_gpus_are_let_go_before_who_asks_for_it_gives_up() -> None:
    assert client.GRACE + process.KILL_WAIT + process.KILL_WAIT < orders.DEADLINE
