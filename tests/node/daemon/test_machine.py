"""What is remembered of the machine over restarts and boots, and the memory of another machine."""

import asyncio
import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.collectors.drawn import Files, Gpus, Watched
from tests.patience import HANGS
from tests.rows import each
from tests.support import Node, StillClock
from wirewatch.catalogue import components
from wirewatch.collectors.infiniband import COLLECTOR as INFINIBAND
from wirewatch.collectors.inventory import COLLECTOR as INVENTORY
from wirewatch.core.collector import Component
from wirewatch.core.machine import Machine, foreign, is_guid, read_machine
from wirewatch.core.types import Absent, Health
from wirewatch.daemon.machine import (
    KeptMachine,
    MachineWriter,
    identify_machine,
    load_kept,
    read_kept,
    recalled,
)
from wirewatch.daemon.persistence import LIMIT, content
from wirewatch.hw.overlay import load_overlay
from wirewatch.statefolder import StateFolder

DMI = "/sys/class/dmi/id"
ONE, OTHER = "4c4c4544-0042-3510-8052-b4c04f4e3533", "4c4c4544-0042-3510-8052-b4c04f4e0000"
COLLECTORS = (INVENTORY, INFINIBAND)


def dmi(uuid: str = "", serial: str = "", *guids: str) -> Files:
    files = Files({f"{DMI}/product_uuid": uuid, f"{DMI}/board_serial": serial})
    for number, guid in enumerate(guids):
        files.texts[f"/sys/class/infiniband/mlx5_{number}/node_guid"] = guid
    return files


@each(
    "uuid",
    ["", "not set", "0" * 8 + "-0000-0000-0000-" + "0" * 12, "ffffffff-ffff-ffff-ffff-ffffffffffff",
     "03000200-0400-0500-0006-000700080009", "To be filled by O.E.M."],
)  # fmt: skip
def test_what_firmware_says_before_anyone_has_told_it_is_no_system_uuid(uuid: str) -> None:
    assert read_machine(dmi(uuid.upper())) == Machine()


@each(
    "serial",
    ["", "None", "N/A", "Default string", "To be filled by O.E.M.", "Not Specified", "0123456789",
     "123456789", "System Serial Number", "00000000", "XXXXXXX", "1234", "Not Applicable", ".......",
     "Unknown"],
)  # fmt: skip
def test_what_stands_in_the_place_of_a_serial_is_none(serial: str) -> None:
    assert read_machine(dmi("", serial)).names == ()


def test_a_machine_is_known_by_its_system_its_board_its_cards_and_its_gpus() -> None:
    files = dmi(ONE.upper(), "WM21CS600123", "b83f:d203:0012:aa01", "0000:0000:0000:0000")
    files.texts["/proc/driver/nvidia/gpus/0000:1b:00.0/information"] = (
        "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-1f2e3d4c-0000-4000-8000-000000000001\nGPU Excluded:\t No"
    )
    files.texts["/proc/driver/nvidia/gpus/0000:43:00.0/information"] = (
        "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????"
    )
    assert read_machine(files) == Machine(
        ONE,
        ("board:WM21CS600123", "gpu:GPU-1f2e3d4c-0000-4000-8000-000000000001", "nic:b83f:d203:0012:aa01"),
    )


class HangingCards(Files):
    """Files of which those of the network cards are never read."""

    def entries(self, path: str) -> Sequence[str] | Absent:
        if path == "/sys/class/infiniband":
            threading.Event().wait()
        return super().entries(path)


def test_a_card_whose_driver_hangs_is_not_waited_for_and_hides_no_other_part() -> None:
    """Before: neither the daemon nor a check began."""
    files = HangingCards(dmi(ONE, "WM21CS600123", "b83f:d203:0012:aa01").texts)
    assert identify_machine(files) == Machine(ONE, ("board:WM21CS600123",))


@each(
    ("kept", "now", "other"),
    [
        (Machine(ONE), Machine(ONE), False),
        (Machine(ONE), Machine(OTHER), True),
        (Machine(ONE, ("gpu:a",)), Machine(ONE, ("gpu:b",)), False),
        (Machine(ONE, ("gpu:a",)), Machine(OTHER, ("gpu:a",)), True),
        (Machine("", ("gpu:a", "gpu:b")), Machine(ONE, ("gpu:b", "gpu:c")), False),
        (Machine("", ("gpu:a",)), Machine("", ("gpu:b",)), True),
        (Machine("", ("gpu:a", "nic:x")), Machine("", ("gpu:b", "nic:x")), False),
        (Machine("", ("nic:x",)), Machine("", ("gpu:b",)), False),
        (Machine("", ("board:1", "gpu:a")), Machine("", ("board:2",)), True),
        (Machine(ONE), Machine(), False),
        (Machine(), Machine(ONE, ("gpu:a",)), False),
    ],
)
def test_whose_memory_it_is(kept: Machine, now: Machine, *, other: bool) -> None:
    assert bool(foreign(kept, now)) is other


NAMES = st.lists(st.sampled_from(["gpu:a", "gpu:b", "nic:x", "nic:y", "board:1"]), unique=True).map(tuple)
MACHINES = st.builds(Machine, st.sampled_from(["", ONE, OTHER]), NAMES)


@given(MACHINES, MACHINES)
def test_a_machine_is_never_foreign_to_itself_and_the_question_has_no_sides(
    one: Machine, two: Machine
) -> None:
    assert foreign(one, one) == ""
    assert bool(foreign(one, two)) == bool(foreign(two, one))


@given(MACHINES, MACHINES)
def test_what_cannot_be_read_any_more_makes_no_machine_another(one: Machine, two: Machine) -> None:
    """Less known is never a reason to put memory aside."""
    if not foreign(one, two):
        assert (foreign(one, Machine()), foreign(Machine(), two)) == ("", "")


def test_guids_that_name_nothing() -> None:
    assert not is_guid("0000:0000:0000:0000")
    assert not is_guid("ffff:ffff:ffff:ffff")
    assert not is_guid("")
    assert is_guid("0000:0000:0000:0010")


def node(files: Files, *uuids: str) -> Watched:
    gpus = Gpus([f"0000:{0x10 + n:02x}:00.0" for n in range(len(uuids))])
    made = Watched("inventory", files, gpus)
    listed = gpus.gpus()
    assert not isinstance(listed, Absent)
    named = [replace(gpu, uuid=uuid) for gpu, uuid in zip(listed, uuids, strict=True)]
    gpus.gpus = lambda: named  # type: ignore[method-assign]
    gpus.table |= {(uuid, "UUID()"): uuid for uuid in uuids}
    return made


def written(path: Path, component: Component, kept: KeptMachine) -> str:
    """The file once the component has been written, which says something new."""
    before = content(path, LIMIT)

    async def run() -> None:
        MachineWriter(path, kept, COLLECTORS, StillClock()).changed(component)
        async with asyncio.timeout(HANGS):
            while content(path, LIMIT) == before:  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.005)

    asyncio.run(run())
    return path.read_text()


def remembering(folder: Path, watched: Watched) -> StateFolder:
    """A state folder that remembers this node after a poll in which all was well."""
    state = StateFolder(folder)
    kept = load_kept(state, COLLECTORS, watched.hardware)
    watched.poll()
    written(state.machine, watched.component, kept)
    return state


def again(watched: Watched, kept: KeptMachine) -> Watched:
    (watched.collector,) = recalled([watched.collector], kept)
    watched.component = Component("inventory", watched.collector.start)
    return watched


def test_a_gpu_that_is_gone_after_a_boot_is_missing(tmp_path: Path) -> None:
    state = remembering(tmp_path, node(dmi(ONE), "GPU-a", "GPU-b"))
    document = json.loads(state.machine.read_text())
    assert document["version"] == 1
    assert document["machine"]["names"] == ["gpu:GPU-a", "gpu:GPU-b"]
    fewer = node(dmi(ONE), "GPU-a")
    kept = load_kept(state, COLLECTORS, fewer.hardware)
    again(fewer, kept).poll(2)
    assert fewer.rules() == {("gpu.missing", "0000:11:00"): Health.FAILED}
    assert again(node(dmi(ONE), "GPU-a", "GPU-b"), kept).poll(2) == ()


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (node(dmi(ONE), "GPU-a", "GPU-b"), node(dmi(OTHER), "GPU-a")),
        (node(dmi(), "GPU-a", "GPU-b"), node(dmi(), "GPU-x")),
    ],
    ids=["another system", "none of its GPUs"],
)
def test_what_an_image_brought_from_another_machine_is_put_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, there: Watched, here: Watched
) -> None:
    state = remembering(tmp_path, there)
    for path in (state.latches, state.baseline, state.history):
        path.write_text("another machine's")
    kept = load_kept(state, COLLECTORS, here.hardware)
    assert (kept.parts, kept.wrong) == ({}, "")
    assert [p.name for p in tmp_path.iterdir() if "corrupt" not in p.name] == []
    assert len(list(tmp_path.iterdir())) == 4
    (line,) = caplog.messages
    assert "of another machine" in line
    assert again(here, kept).poll(2) == ()


def test_a_command_only_reads_what_another_machine_kept(tmp_path: Path) -> None:
    state = remembering(tmp_path, node(dmi(ONE), "GPU-a", "GPU-b"))
    kept = read_kept(state.machine, COLLECTORS, node(dmi(OTHER), "GPU-a").hardware)
    assert (bool(kept.foreign), kept.parts) == (True, {})
    assert [path.name for path in tmp_path.iterdir()] == ["machine.json"]


def test_a_file_that_cannot_be_understood_is_put_aside_and_said(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    for text in ('{"version": 1', '{"version": 2, "at": 1, "machine": {}, "parts": {}}',
                 '{"version": 1, "at": 1, "machine": {}, "parts": {"inventory": {"slots": 3}}}'):  # fmt: skip
        state.machine.write_text(text)
        read = read_kept(state.machine, COLLECTORS, node(dmi(), "GPU-a").hardware)
        assert read.wrong.startswith(str(state.machine))
        assert state.machine.exists(), "a command only reads"
        kept = load_kept(state, COLLECTORS, node(dmi(), "GPU-a").hardware)
        assert "kept as" in kept.wrong
        assert not state.machine.exists()


def test_what_a_collector_kept_that_is_switched_off_now_stays_in_the_file(tmp_path: Path) -> None:
    state = remembering(tmp_path, node(dmi(), "GPU-a"))
    document = json.loads(state.machine.read_text())
    document["parts"]["later"] = {"anything": [1, 2]}
    state.machine.write_text(json.dumps(document))
    here = node(dmi(), "GPU-a", "GPU-b")
    kept = load_kept(state, COLLECTORS, here.hardware)
    here.poll()
    assert json.loads(written(state.machine, here.component, kept))["parts"]["later"] == {"anything": [1, 2]}


FAULTS = {"hangs": "job-hang-stopped"}
"""Collectors that remember nothing of a healthy node, and a fault of which they do."""


@pytest.mark.parametrize("collector", [c for c in components() if c.lasting], ids=lambda c: c.name)
def test_what_lasts_is_the_same_after_it_was_recalled(collector: object) -> None:
    """Restarting twice without a poll in between loses nothing."""
    one = next(c for c in components() if c is collector)
    fault = FAULTS.get(one.name)
    made = Node("demo-dgx-h200", load_overlay(fault).changes if fault else ())
    made.poll(one.name, times=15 if fault else 2)
    assert one.lasting is not None
    kept = one.lasting.keep(made.state.components[one.name].memory)
    assert one.lasting.keep(one.lasting.recall(kept)) == kept
    assert kept != type(kept)(), "the recorded node has something to remember"


def test_the_file_of_a_newer_agent_is_refused_for_its_version_whatever_else_it_says(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.machine.write_text('{"version": 2, "told": {}}')
    kept = load_kept(state, COLLECTORS, node(dmi(), "GPU-a").hardware)
    assert "written by a newer wirewatch, version 2, this agent knows 1; kept as" in kept.wrong
    (aside,) = tmp_path.iterdir()
    assert aside.read_text() == '{"version": 2, "told": {}}'


def test_only_what_was_read_and_is_new_is_written() -> None:
    watched, done = node(dmi(ONE), "GPU-a"), list[str]()
    started = watched.component
    watched.poll()
    writer = MachineWriter(None, KeptMachine(), COLLECTORS, StillClock())
    vars(writer)["_writer"] = SimpleNamespace(
        submit=lambda: done.append("written"), try_again=lambda: done.append("tried again if it had failed")
    )
    for component in (
        started,
        replace(watched.component, last_success=0.0, facts=None),
        Component("pcie", "of no use later", last_success=1.0),
        watched.component,
        watched.component,
    ):
        writer.changed(component)
    assert done == ["tried again if it had failed"] * 3 + ["written", "tried again if it had failed"]
