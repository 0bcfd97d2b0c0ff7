"""How long the daemon waits, and how much it takes and keeps: a change of any is meant."""

from types import ModuleType

from tests.rows import each
from wirewatch.cli import orders
from wirewatch.daemon import (
    baselines,
    log,
    machine,
    nodecondition,
    notify,
    operator,
    pairsresult,
    persistence,
    prober,
    release,
    schedule,
    service,
)


@each(
    ("module", "limits"),
    [
        (log, {"MINUTE": 60.0, "KINDS": 500, "ROOM": 256 << 10, "PATIENCE": 0.05, "_BEGINNING": 60,
               "_SUMMARIES": 20}),
        (machine, {"PATIENCE": 1.0}),
        (nodecondition, {"TICK": 5.0}),
        (notify, {"SOON": 0.2, "OFTEN": 5.0, "PARTS": 3.0, "LONGEST": 300, "LOOK": 1.0, "MODE": 0o644}),
        (operator, {"WITHIN": 8.0}),
        (pairsresult, {"WITHIN": 8.0}),
        (persistence, {"LIMIT": 16 << 20, "AGAIN": 2.0, "EVERY": 600.0, "_NAMES": 1000}),
        (prober, {"PATIENCE": 2.0, "IDLE": 300.0, "LAST": 2.0, "CONNECTIONS": 32,
                  "REQUEST_BYTES": 256 << 10, "REQUEST_SECONDS": 5.0}),
        (release, {"WITHIN": 1.8, "LAST": 0.5}),
        (schedule, {"SLACK": 3.0, "RETRY": 15.0, "ROOM": 0.5, "AGAIN": 0.05}),
        (service, {"LAST_WRITE": 1.0}),
    ],
)  # fmt: skip
def test_what_the_daemon_waits_for_and_keeps(module: ModuleType, limits: dict[str, float]) -> None:
    assert {name: getattr(module, name) for name in limits} == limits


def test_files_of_the_state_folder_are_those_of_version_1() -> None:
    """An agent that knows another version puts a file aside."""
    modules = (baselines, machine, pairsresult, persistence)
    assert [(module.VERSION, module.FILE.version) for module in modules] == [(1, 1)] * 4


def test_an_order_is_carried_out_or_refused_before_who_gave_it_gives_up() -> None:
    assert max(operator.WITHIN, pairsresult.WITHIN, release.WITHIN) < orders.DEADLINE
