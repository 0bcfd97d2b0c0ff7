"""What is read around a worker: counters at its marks, memory, clocks, links and network cards."""

import time

from tests.probes.rig import NAMES, PROCESSES, TALLY, Rig
from wirewatch.core.probe import Clocks, LinkBytes
from wirewatch.core.types import Absent, Why


def test_counters_are_read_at_every_mark_in_order(rig: Rig) -> None:
    """The counter of GPU 0 grows by 1 KiB until the first mark, then by 3, 5, 7, ... until the next."""
    reads = 0

    def grow(gpu: str | None, question: str) -> None:
        nonlocal reads
        if (gpu, question) == ("GPU-0", TALLY):
            reads += 1
            rig.nvml.table[gpu, question] = reads**2

    rig.nvml.before = grow
    probed = rig.run("good")
    assert tuple(part.name for part in probed.parts) == NAMES
    assert [part.moved[0].transmit for part in probed.parts] == [n * 1024 for n in (3, 5, 7, 9)]
    assert [part.moved[1].transmit for part in probed.parts] == [0, 0, 0, 0]
    assert all([m.gpu for m in part.moved] == [0, 1] for part in probed.parts)
    assert sum(part.seconds for part in probed.parts) < probed.seconds


def test_a_mark_that_is_no_utf_8_still_names_its_part(rig: Rig) -> None:
    probed = rig.run("latin")
    assert tuple(part.name for part in probed.parts) == ("all_reduce\ufffd.0", *NAMES)


def test_links_memory_and_clocks_are_read_around_the_worker(rig: Rig) -> None:
    asked = 0

    def grow(gpu: str | None, question: str) -> None:
        nonlocal asked
        table = rig.nvml.table
        if (gpu, question) == ("GPU-1", "MemoryInfo()"):
            asked += 1
            # Before, at five marks, and after.
            table[gpu, question] = {"used": [100, 200, 300, 700, 300, 200, 150][asked - 1]}
        if gpu == "GPU-0" and question == "Field(138,1)":
            table[gpu, question] = 1000 + asked

    rig.nvml.before = grow
    probed = rig.run("good")
    assert (probed.gpus[1].memory_before, probed.gpus[1].memory_peak, probed.gpus[1].memory_after) == (
        100,
        700,
        150,
    )
    assert probed.clocks == (Clocks(0, 1.98e9, 2.619e9, 0), Clocks(1, 1.98e9, 2.619e9, 0))
    assert probed.links[0] == LinkBytes(0, (0, 1), (0, 6 * 1024), (0, 0))
    assert probed.links[1] == LinkBytes(1, (0, 1), (0, 0), (0, 0))


def test_links_are_read_before_the_first_part_however_slow_nvml_is(rig: Rig) -> None:
    """GPU 1 is asked first, and the worker waits at its first mark by then."""

    def ask(gpu: str | None, question: str) -> None:
        if (gpu, question) == ("GPU-1", "Field(91)"):
            time.sleep(0.2)

    rig.nvml.before = ask
    probed = rig.run("good")
    assert [links.links for links in probed.links] == [(0, 1), (0, 1)]
    assert tuple(part.name for part in probed.parts) == NAMES


def test_nvml_that_tells_nothing_but_processes_costs_the_proofs_and_no_more(rig: Rig) -> None:
    rig.nvml.table = {("GPU-0", PROCESSES): [], ("GPU-1", PROCESSES): []}
    probed = rig.run("good")
    assert (probed.outcome, probed.links) == ("ok", ())
    assert [m.transmit for part in probed.parts for m in part.moved] == [None] * 2 * len(NAMES)
    assert probed.gpus[0].memory_peak is None
    assert probed.clocks[0] == Clocks(0, None, None, None)


def test_gpus_that_were_lost_meanwhile_are_somebody_to_give_way_to(rig: Rig) -> None:
    lost = Absent(Why.LOST, "GPU is lost", 15)
    rig.nvml.table = dict.fromkeys(rig.nvml.table, lost)
    probed = rig.run("silent")
    assert (probed.outcome, probed.document) == ("preempted", None)
    assert probed.why == "the processes on GPU 0 cannot be read: lost: GPU is lost"


def test_ports_of_network_cards_are_read_before_and_after(rig: Rig) -> None:
    rig.files.nic("mlx5_0", "0000:18:00.0", "pci0000:15")
    rig.files.set("mlx5_0", counters__port_xmit_data="100")

    def send(_gpu: str | None, question: str) -> None:
        if question == "ClockInfo(1)":
            rig.files.set("mlx5_0", counters__port_xmit_data="350")

    rig.nvml.before = send
    assert rig.run("good").ports == {"mlx5_0:1": 1000}
