"""A probe from its order to its outcome, with workers that do what no worker should."""

import tempfile
import time
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from tests.groups import dies
from tests.probes.rig import PLAN, Rig, open_files
from tests.support import EPOCH
from wirewatch.core.probe import Probed

MALFORMED = "not a document of the worker: "
STRANGE = "not a document of this plan: "
NONSENSE = "not what a worker writes: "
OUTCOMES = [
    ("good", "ok", ""),
    ("rushed", "ok", ""),
    ("latin", "ok", ""),
    ("lingering", "ok", ""),
    ("parent", "ok", ""),
    ("garbage", "garbage", f"{MALFORMED}Invalid JSON"),
    ("half", "garbage", f"{MALFORMED}Invalid JSON: EOF"),
    ("stalled", "garbage", f"{MALFORMED}Invalid JSON: EOF"),
    ("nan", "garbage", f"{MALFORMED}cost.done: Input should be a finite number"),
    ("strange", "garbage", f"{STRANGE}GPUs that are not there"),
    ("long", "garbage", f"{NONSENSE}its document is longer than 8388608 bytes"),
    ("flood", "garbage", f"{NONSENSE}it makes more than 1000 marks"),
    ("endless_mark", "garbage", f"{NONSENSE}it makes more than 1000 marks, or one of more than 4096 bytes"),
    ("silent", "timeout", "no result after 0.6 s; killed: waiting for a driver"),
    ("stubborn", "timeout", "no result after 0.6 s; killed: waiting for a driver"),
    ("deaf", "timeout", "no result after 0.6 s; killed"),
    ("mute", "failed", "the worker hung at its end and told nothing"),
    ("crash", "failed", "the worker was ended by SIGSEGV and told nothing: Fatal error: wires crossed"),
    ("fallen_parent", "failed", "the worker was ended by SIGSEGV and told nothing: Fatal error: wires"),
    (
        "exit3",
        "failed",
        "the worker ended with status 3 and told nothing: libnccl.so.2: cannot open [31mshared",
    ),
    ("empty", "failed", "the worker ended with status 0 and told nothing"),
    ("talkative", "failed", "the worker ended with status 1 and told nothing: the last of many words"),
    ("out_of_memory", "out_of_memory", "GPU 1: 512 MiB cannot be had"),
]
PROBED = TypeAdapter(Probed)


def nothing_left(rig: Rig) -> None:
    assert dies(rig.pid())
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


@pytest.mark.parametrize(("worker", "outcome", "why"), OUTCOMES)
def test_whatever_a_worker_does_there_is_an_outcome_in_time_and_nothing_is_left(
    rig: Rig, worker: str, outcome: str, why: str
) -> None:
    files, began = open_files(), time.monotonic()
    probed = rig.run(worker, 0.6 if outcome == "timeout" else 10.0)
    assert time.monotonic() - began < (16.0 if outcome == "timeout" else 24.0)
    assert (probed.outcome, probed.why[: len(why)]) == (outcome, why)
    assert bool(probed.why) is (outcome != "ok")
    assert (probed.document is not None) is (outcome in {"ok", "out_of_memory"})
    nothing_left(rig)
    assert open_files() == files
    assert PROBED.validate_json(PROBED.dump_json(probed)) == probed


def test_twenty_probes_leave_no_descriptor(rig: Rig) -> None:
    rig.run("good")
    files = open_files()
    for _ in range(4):
        for worker in ("good", "crash", "parent", "garbage"):
            rig.run(worker)
        rig.run("silent", 0.05)
    assert open_files() == files
    nothing_left(rig)


def test_what_was_ordered_comes_back_with_the_result(rig: Rig) -> None:
    probed = rig.run("good", forced=True)
    assert (probed.at, probed.by, probed.forced) == (EPOCH, "command", True)
    assert (probed.settings, [g.uuid for g in probed.gpus]) == ({"NCCL_ALGO": "Ring"}, ["GPU-0", "GPU-1"])
    assert probed.plan == PLAN
    assert 0 < probed.held_seconds < probed.seconds < 3
    assert probed.document is not None
    assert probed.held_seconds == pytest.approx(probed.seconds - probed.document.cost.imported)
