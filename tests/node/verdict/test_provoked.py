"""Every wrong answer that could once be provoked, and the right one, which each row has the product give."""

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.node.busbw import test_known as known
from tests.node.busbw.nodes import A100, B200, H200
from tests.node.cli import test_check_overlays as overlays
from tests.node.cli import test_one_answer as places
from tests.node.cli.checks import overlay
from tests.node.collectors import test_infiniband as rdma
from tests.node.collectors import test_infiniband_memory as ports
from tests.node.collectors import test_inventory_slots as slots
from tests.node.collectors import test_limits as limits
from tests.node.collectors import test_nvlink_boards as boards
from tests.node.collectors import test_nvlink_memory as bridges
from tests.node.collectors import test_starting as starting
from tests.node.collectors import test_xid as xids
from tests.node.collectors.drawn import Log, Watched
from tests.node.collectors.test_overlays import watch
from tests.node.daemon import test_machine as machines
from tests.node.hw.children import until
from tests.node.hw.recordings import one_change
from tests.node.page.pages import content_of, html_of
from tests.node.probe import test_bandwidth as probes
from tests.node.probe import test_collector_metrics as exported
from tests.node.probe import test_judge_stragglers as stragglers
from tests.node.probe.drawn import drawn, on_switch
from tests.node.probe.idle import Idle
from tests.node.verdict import test_causes as causes
from tests.node.verdict import test_latching_clocks as clocks
from tests.node.verdict.drawn import Drawn
from tests.node.verdict.drift import test_off as drift
from tests.node.verdict.recordednode import RecordedNode
from tests.node.verdict.straggler import test_matrix as matrix
from tests.node.verdict.straggler.nodes import history, probe
from tests.patience import HANGS
from tests.processes import Process, run_wirewatch
from tests.support import EPOCH, Node, StillClock
from wirewatch.cli.check.answer import line
from wirewatch.core.nvml import RECOVERY_ACTIONS
from wirewatch.core.types import ErrorLimit, Finding, Health, OperatorNote, Subject
from wirewatch.daemon.board import Board
from wirewatch.daemon.machine import load_kept
from wirewatch.daemon.operator import TopologyOrders
from wirewatch.documents.drift import AcceptOrder
from wirewatch.hw.overlay import load_overlay
from wirewatch.hw.recording import load_recording
from wirewatch.probe.history import History
from wirewatch.probe.restore import keep, remember
from wirewatch.verdict.drift.component import (
    BaselineInMemory,
    DriftContext,
    DriftOptions,
    drift_component,
)
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.latching import step
from wirewatch.verdict.ledger import Ledger, Now, Stage, VerdictPolicy
from wirewatch.verdict.node import judge_node, judge_state
from wirewatch.verdict.orders import OrderError, gate, suppress

OK, D, U, F = Health
CONFIRMED = 3
"""Polls after which a fault that stays is FAILED."""
GB200 = "NVIDIA GB200"
DEMO, ONE_GPU, TWO_GPUS = "demo-dgx-h200", "h200x1-idle", "h200x2-idle"


def worst(findings: Iterable[Finding]) -> dict[str, Health]:
    """The worst health of each rule."""
    found: dict[str, Health] = {}
    for one in findings:
        found[one.rule] = max(one.health, found.get(one.rule, OK))
    return found


def polled(node: Node | Watched, times: int = CONFIRMED) -> dict[str, Health]:
    """What a node finds after so many more polls."""
    node.poll(times=times)
    return worst(node.findings() if isinstance(node, Node) else node.component.findings)


# --- 1. What was there and is not


def gpu_that_never_came(_: Path) -> object:
    node = slots.node(slots.tree(*slots.SLOTS), slots.answering(3))
    node.log = Log([slots.INIT])
    node.hardware = replace(node.hardware, kmsg=node.log)
    found = polled(node)
    return found, "RmInitAdapter failed" in slots.only(node).evidence


def baseline_of_seven(_: Path) -> object:
    node = drift.Drifting(learn=False)
    node.changes += drift.without_the_last(node, "nvidia")
    node.found(times=6)
    return node.kept.baseline


def polling(numbers: Iterable[int]) -> Callable[[Path], object]:
    """Of eight ports that were active, these poll since the boot; and on a node without any memory."""

    def provoke(_: Path) -> object:
        new = rdma.watched(8)
        was = ports.before()
        for node in (new, was):
            for number in numbers:
                node.files.set(f"mlx5_{number}", **ports.POLLING)
        return polled(ports.restarted(was)), polled(new)

    return provoke


def two_lanes(_: Path) -> object:
    new, was = rdma.watched(8), ports.before()
    for node in (new, was):
        for number in range(8):
            node.files.set(f"mlx5_{number}", rate="200 Gb/sec (2X NDR)")
    return polled(ports.restarted(was)), polled(new)


def links(product: str, reported: int, *active: int) -> Callable[[Path], object]:
    """Cards of which so many links are active since the start."""
    return lambda _: polled(bridges.cards(product, active, reported, gpus=len(active)))


def links_before_a_boot(_: Path) -> object:
    node = bridges.cards(bridges.H100_NVL, (12, 12))
    node.poll()
    for link in (14, 15):
        node.change(f"gpu1/Field(165,{link})", "set", 0)
    return polled(bridges.restarted(node))


def gpu_by_slot(_: Path) -> object:
    node = slots.node(slots.tree(*slots.SLOTS[:3]), slots.answering(3), slots.kept())
    return polled(node)


def usual_busbw(folder: Path) -> object:
    clock = StillClock()
    history = History.open(folder / "probes.sqlite", clock)
    for number in range(probes.LEARN):
        at = EPOCH + 600.0 * number
        keep(history, replace(drawn(probes.UNKNOWN), at=at), at, "boot-1", "daemon")
    memory = remember(history, clock, probes.POLICY)
    return worst(probes.after(probes.speeds(probes.UNKNOWN, 0.6), memory).held)


def card_without_rdma(_: Path) -> object:
    node = rdma.watched(2)
    ports.stray(node.files, "0x020700")
    return polled(node)


def baked_image(folder: Path) -> object:
    there = machines.node(machines.dmi(machines.ONE), "GPU-a", "GPU-b")
    here = machines.node(machines.dmi(machines.OTHER), "GPU-a")
    state = machines.remembering(folder, there)
    kept = load_kept(state, machines.COLLECTORS, here.hardware)
    found = polled(machines.again(here, kept))
    return found, kept.foreign.count("another machine"), state.machine.exists()


class Accepting(RecordedNode):
    """A whole node with a baseline that it has learned, and orders to accept its topology."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept = BaselineInMemory()
        around = DriftContext(self.kept)
        self.node.collectors["drift"] = drift_component(DriftOptions(), DriftPolicy(), around)
        self.board = Board(list(self.node.collectors.values()), self.node.clock)
        self.poll(times=4)
        assert self.kept.baseline is not None

    async def _reading(self, name: str) -> None:
        self.poll(name)

    def _forget(self) -> None:
        for name, one in self.node.collectors.items():
            if one.forget is not None:
                component = self.board.state.components[name]
                self.board.publish(replace(component, memory=one.forget(component.memory)))

    def accept(self, *, yes: bool) -> str:
        """Accept all that is here; why it was refused, or nothing."""
        orders = TopologyOrders(self.kept, self.node.clock)  # type: ignore[arg-type]
        orders.attach(self.board, lambda: None, self._reading, self._forget)
        try:
            asyncio.run(orders.accept(AcceptOrder("ann", "as it is", yes=yes)))
        except OrderError as error:
            return str(error)
        return ""


def taken_out(folder: Path) -> object:
    node = Accepting(folder)
    gone = drift.place_of(node.node, 7)
    node.change("Count()", "set", 7)
    for path in (f"read /sys/bus/pci/devices/{gone}/*", f"link /sys/bus/pci/devices/{gone}*"):
        node.change(path, "errno", "ENOENT", port="sysfs")
    before = node.poll(times=4).health
    assert "is gone" in node.accept(yes=False)
    assert node.accept(yes=True) == ""
    return before, worst(node.poll(times=4).findings), node.stages()


def pool(folder: Path) -> object:
    made = run_wirewatch("topology", "expect", "--replay", DEMO).stdout
    (folder / "pool.toml").write_text(made)
    words = ("topology", "expect", "--config", str(folder / "pool.toml"))
    return made.split("\n")[:3], run_wirewatch(*words, "--replay", TWO_GPUS).returncode


# --- 2. No reference, no ratio, no alarm


def ten_times_too_slow(product: str, count: int) -> Callable[[Path], object]:
    """The worst of what two such probes find, on a board with an H200's links; and one at full speed."""
    here = on_switch(count, product)

    def provoke(_: Path) -> object:
        slow, fast = (probes.after(probes.speeds(here, speed, speed)).held for speed in (0.1, 1.0))
        return max(worst(slow).values(), default=OK), worst(fast)

    return provoke


def share_of_the_wire(_: Path) -> object:
    told = list(exported.results(drawn(on_switch(2, GB200), speed=0.1)))
    found = exported.series(told, "probe_busbw_peak_ratio")
    return len(found), len(exported.series(told, "probe_busbw_ratio")), max(found.values()) < 0.1


def own_history(_: Path) -> object:
    learned = probes.learned(probes.UNKNOWN)
    return worst(probes.after(probes.speeds(probes.UNKNOWN, 0.6, 0.6), learned).held)


def nothing_expected(folder: Path) -> object:
    """The gauge, the line of the page and that of `check`, and what is found."""
    renamed = 'at = "conditions/*/group/gpus/*/name"\nset = "NVIDIA R100"'
    file = one_change(folder, renamed, match="Run()", port="probe")
    node = Node(DEMO, load_overlay(file).changes)
    watch(node)
    page = html_of(content_of(judge_state(node.state), node))
    told = line(overlays.checked(file))
    gauge = set(node.series("probe_expected_known"))
    return (
        gauge,
        "Nothing is expected of" in page,
        "no expected bandwidth here for" in told,
        worst(node.findings()),
    )


def references(_: Path) -> object:
    rows = {name: topology for name, topology, _, _ in known.ROWS}
    wanted = ("2 A100", "4 A100", "4 B200", "8 B300", "4 GB200", "2 H100 NVL", "8 L40S on two sockets")
    return {name: known.confidence(known.conditions(rows[name]), "all_reduce") for name in wanted}


# --- 3. Commands that let a fault pass


def bundled(name: str) -> Callable[[Path], object]:
    def provoke(_: Path) -> object:
        answer = overlays.checked(name)
        return answer.health, answer.code

    return provoke


def link_down_while_accepting(folder: Path) -> object:
    node = Accepting(folder)
    node.change("gpu2/Field(165,7)", "set", 0)
    node.poll("nvlink", times=CONFIRMED)
    refused = node.accept(yes=False)
    return (
        "18 -> 17 links up" in refused,
        "end first: nvlink.link_down" in refused,
        "--yes" in refused,
    )


def suppressed_failure(_: Path) -> object:
    node = Drawn()
    node.find("nvlink.link_down", node.gpu())
    node.look(times=CONFIRMED)
    (one,) = node.verdict.standings
    said = OperatorNote("ann", "part is ordered", node.at)
    after = judge_node(node.state, suppress(node.ledger, one, node.at + 60.0, said, node.policy))
    try:
        gate(one, node.verdict, after, "until then").guard(yes=False)
    except OrderError as error:
        why = str(error)
        return "jobs may start" in why, "--yes" in why, node.verdict.job_ready
    return False, False, True


# --- 4. One rule for one question


def may_start(health: Health) -> Callable[[Path], object]:
    """By the configured set, what all places say to whether a job may start."""
    return lambda _: {
        names: {may for _, may in places.answers(places.judged(health, names))} for names in places.SETS
    }


# --- 5. What may still be starting


def mig(_: Path) -> object:
    node = drift.Drifting(drift.mig("*", 1, 1), drift.down("*"))
    return node.found()


def slow_boot(polls: int, **policy: float) -> Callable[[Path], object]:
    def provoke(_: Path) -> object:
        node = Node(only=("nvlink",))
        node.policy("nvlink", **policy)
        starting.registering(node)
        return polled(node, polls)

    return provoke


def slow_boots(*polls: int) -> Callable[[Path], object]:
    """Boots after each of which the fabric registers for so many polls; how often it counts as a failure."""

    def provoke(folder: Path) -> object:
        node = RecordedNode(folder, only=("nvlink",))
        for number, times in enumerate(polls):
            node.boot(f"boot-{number}")
            node.change("gpu1/GpuFabricInfoV()", "set", {**starting.FABRIC, "state": 2})
            node.poll(times=times)
            node.repair()
            node.change("BootId()", "set", f"boot-{number}", port="host")
            node.poll(times=6)
        return node.health, [(one.stage, one.times) for one in node.ledger.entries.values()]

    return provoke


def sweep(polls: int, **policy: float) -> Callable[[Path], object]:
    def provoke(_: Path) -> object:
        node = rdma.watched(8)
        node.policy(**policy)
        node.poll()
        node.files.set("mlx5_2", state="2: INIT")
        return polled(node, polls)

    return provoke


# --- 6. Products and ports that are as they should be


def bridged(name: str) -> Callable[[Path], object]:
    """Healthy, and with one link at half its rate."""

    def provoke(_: Path) -> object:
        node = boards.card(name, boards.A6000, boards.BRIDGED)
        node.poll("nvlink", times=CONFIRMED)
        healthy = worst(node.findings())
        node.change("gpu1/Field(164,0)", "set", boards.A6000 // 2)
        node.poll("nvlink", times=CONFIRMED)
        return healthy, worst(node.findings())

    return provoke


def switched_off(_: Path) -> object:
    return polled(starting.switched_off(None), 20)


def gpu_of_a_guest(_: Path) -> object:
    node = boards.card("NVIDIA H200", 0, 18, ONE_GPU)
    node.change("gpu*/Field(165,*)", "set", 0)
    node.poll("nvlink", times=30)
    return worst(node.findings())


# --- 7. What was looked at


def without_a_series(folder: Path) -> object:
    node = Drawn(folder, plain=())
    node.find("infiniband.ports_missing", Subject())
    node.look(times=CONFIRMED)
    node.clear("infiniband.ports_missing", Subject())
    node.ports, node.gpus = [], []
    node.reboot()
    return node.look(seconds=3600.0, times=25).health


def without_samples(_: Path) -> object:
    """A link that is down and repaired, on a node whose collectors export nothing."""
    node, ledger, found = Node(DEMO, only=("inventory", "nvlink")), Ledger("boot-1"), []
    down = node.change("gpu2/Field(165,7)", "set", 0)
    for number in range(12):
        state = node.poll()
        for component in state.components.values():
            state = state.with_component(replace(component, samples=()))
        ledger = step(ledger, state, Now(node.clock.now(), node.clock.mono()), VerdictPolicy())
        found.append(judge_node(state, ledger).health)
        if number == CONFIRMED:
            node.undo(down)
    return found[CONFIRMED], found[-1]


# --- 8. What the driver says


def crash(_: Path) -> object:
    node = xids.watched(*[xids.xid(13, rest=f"pid=4711, name=train, {xids.SM}")] * 12)
    node.log.step = 1e-4
    # The log begins then: within the day in which crashes count.
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 100
    return polled(node, 2), node.series("xid_events_total", xid="13")


def driver(text: str) -> Callable[[Path], object]:
    """The health of what this line of the log makes, and whether it wants GPUs drained."""

    def provoke(_: Path) -> object:
        node = xids.watched("boot")
        node.poll()
        node.log.lines.append(text)
        (finding,) = node.poll()
        return finding.health, "drain" in finding.action

    return provoke


def said_twice(_: Path) -> object:
    """Recovery actions of which NVML and XID 154 do not make the same."""
    unlike = []
    for number, name in list(enumerate(RECOVERY_ACTIONS))[1:]:
        by_log = xids.watched()
        by_log.poll()
        words = f"{number:#x} ({name.replace('_', ' ').title()})"
        changed = f"GPU recovery action changed from 0x0 (None) to {words}"
        by_log.log.lines.append(xids.xid(154, rest=changed))
        by_nvml = Node(only=("gpu",))
        by_nvml.change("gpu0/Field(230)", "set", number)
        by_nvml.poll(times=2)
        told = {(one.health, one.action) for one in (*by_log.poll(), *by_nvml.findings())}
        unlike += [name] * (len(told) != 1)
    return unlike


# --- 9. Rates, sources and clocks


def after_six_hours(count: int) -> Callable[[Path], object]:
    """Symbol errors that a reading shows six hours after the one before; 100 a minute are the limit."""

    def provoke(_: Path) -> object:
        node = limits.port()
        node.policy(error_limits={"symbol_errors": ErrorLimit(100, 60.0)})
        node.poll(every=6 * 3600.0)
        node.files.set("mlx5_0", counters__symbol_error=str(count))
        return [one.evidence.partition(",")[0] for one in node.poll()]

    return provoke


def half_slow(_: Path) -> object:
    left = {f"pair {a}>{b}": 0.6 for a in range(4) for b in range(8) if a != b}
    slow = drawn(stragglers.EIGHT, left=left)
    held = stragglers.folded([stragglers.GOOD] * 6 + [slow] * 2).held
    four = probe(4, {"source 0": 0.6, "source 1": 0.6})
    return {(one.rule, one.subject.gpu) for one in held}, matrix.slow(four), matrix.slow(four, history(4))


def repaired_before(_: Path) -> object:
    """After one word, which leaves it on probation, and after another, which ends it."""
    found = []
    for words in (1, 2):
        node = clocks.mended(clocks.XID, F, words)
        node.play([("set", clocks.HOUR), ("restart", 0.0)])
        found.append(node.look().health)
    return found


def new_after_a_correction(_: Path) -> object:
    node = clocks.mended(clocks.XID, F, 1)
    node.play([("set", -clocks.HOUR)])
    node.event(clocks.XID, node.gpu())
    return node.look().health


def jump(_: Path) -> object:
    node = clocks.Skewed()
    node.find(clocks.DOWN, node.gpu())
    node.look()
    node.suppress(clocks.DOWN, node.gpu(), clocks.DAY)
    node.play([("set", clocks.YEAR), ("look", clocks.HOUR)])
    ahead = node.health
    node.play([("set", -clocks.YEAR), ("look", 15.0)])
    return ahead, node.health, node.look(seconds=clocks.DAY).health


# --- 10. Commands on nodes that lack something


def fresh_probe(recording: str, *changes: tuple[str, str, str]) -> Callable[[Path], object]:
    def provoke(folder: Path) -> object:
        changed = overlay(folder, *changes) if changes else ()
        return run_wirewatch("check", "--replay", recording, *changed, "--require-fresh-probe").returncode

    return provoke


def renderer(_: Path) -> object:
    node = Idle(2)
    node.answer(1, "GraphicsRunningProcesses", [{"pid": 4711, "usedGpuMemory": 300 << 20}])
    node.files.texts["/proc/4711/comm"] = "blender"
    node.poll(20, every=30.0)
    return node.reason(), len(node.probes.ordered)


def without_inventory(folder: Path) -> object:
    config = folder / "wirewatch.toml"
    config.write_text("[collectors.inventory]\nenabled = false\n")
    done = run_wirewatch("check", "--replay", TWO_GPUS, "--config", str(config))
    return done.returncode, done.stdout.partition(";")[0], "Traceback" in done.stderr


def folder_that_cannot_be_made(folder: Path) -> object:
    (folder / "file").write_text("")
    done = run_wirewatch("record", str(folder / "file" / "below"))
    return done.returncode, "moment" in done.stderr, "Traceback" in done.stderr


def interrupted(folder: Path) -> object:
    place = folder / "r"
    words = ("wirewatch", "record", str(place), "--moments", "1000", "--every", "0.2")
    with Process(words, subprocess.PIPE, subprocess.PIPE) as process:
        until((place / "manifest.json").exists)
        process.send_signal(signal.SIGINT)
        told = process.communicate(HANGS)[1].splitlines()[-1]
    return process.wait(), told.endswith("by Ctrl-C"), len(load_recording(str(place)).times) > 0


def without_driver(_: Path) -> object:
    verdict = judge_node(causes.without_driver().state)
    return [one.finding.rule for one in verdict.standings], len(verdict.every) > 1


# --- The table


@dataclass(frozen=True, slots=True)
class Case:
    """A case by the number of its kind; `provoke` has the product answer, in an empty folder."""

    number: int
    name: str
    provoke: Callable[[Path], object]
    right: object


FAILED_RDMA = {"infiniband.port_down": F}
INACTIVE = {"infiniband.port_inactive": D}
CASES: Sequence[Case] = (
    # Before: OK.
    Case(1, "NVML counts 7, the PCI tree shows the eighth, the kernel log says RmInitAdapter failed",
         gpu_that_never_came, ({"gpu.missing": F}, True)),
    # Before: a baseline of seven was learned.
    Case(1, "no baseline is learned without the GPU that is missing", baseline_of_seven, None),
    # Before: OK.
    Case(1, "all RDMA ports polling since boot", polling(range(8)), (FAILED_RDMA, INACTIVE)),
    # Before: OK.
    Case(1, "half of the RDMA ports polling since boot", polling(range(4)), (FAILED_RDMA, INACTIVE)),
    # Before: OK.
    Case(1, "all RDMA ports at 2X, as they were not before", two_lanes, ({"infiniband.port_slow": F}, {})),
    # Before: OK, since the most links that were seen were those to expect.
    Case(1, "H100 NVL with 11 of 12 links since start", links(bridges.H100_NVL, 18, 11, 11),
         {"nvlink.links_missing": F}),
    # Before: OK.
    Case(1, "A100 PCIe with 11 of 12 links since start", links(bridges.A100, 12, 11, 11),
         {"nvlink.link_down": F}),
    # Before: OK.
    Case(1, "H100 NVL with 11 of 12 links on one GPU of two alone", links(bridges.H100_NVL, 18, 12, 11),
         {"nvlink.link_down": F}),
    # Before: OK.
    Case(1, "A100 PCIe with 11 of 12 links on a GPU alone", links(bridges.A100, 12, 11),
         {"nvlink.link_down": F}),
    # Before: OK, since what had been active was forgotten with a restart.
    Case(1, "links that were active are remembered over boots", links_before_a_boot, {"nvlink.link_down": F}),
    # Before: OK.
    Case(1, "GPUs are remembered by slot", gpu_by_slot, {"gpu.missing": F}),
    # Before: OK.
    Case(1, "collective busbw is remembered over restarts", usual_busbw, {"probe.slower": D}),
    # Before: OK.
    Case(1, "a card with its driver and without an RDMA device", card_without_rdma,
         {"infiniband.device_gone": F}),
    # Before: nothing was remembered of a machine.
    Case(1, "the memory of another host is put aside with one line", baked_image, ({}, 1, False)),
    # Before: nothing was remembered that could be forgotten.
    Case(1, "topology accept forgets what somebody took out", taken_out,
         (F, {"gpu.lost": D}, {"gpu.lost": Stage.PROBATION})),
    # Before: no such command; every [expect] was written by hand.
    Case(1, "[expect] for a pool is written from a good node, and holds for others", pool,
         (["[expect]", "gpus = 8", "nvlink_links = 18"], 2)),

    # FAILED before too.
    Case(2, "a probe ten times too slow on H200", ten_times_too_slow(H200, 8), (F, {})),
    # Before: OK.
    Case(2, "a probe ten times too slow on an H200 renamed A100-SXM4", ten_times_too_slow(A100, 8), (F, {})),
    # Before: OK.
    Case(2, "a probe ten times too slow on an H200 renamed GB200", ten_times_too_slow(GB200, 8), (F, {})),
    # Before: OK.
    Case(2, "a probe ten times too slow on B200 without a reference", ten_times_too_slow(B200, 2), (F, {})),
    # Before: no series, and `of wire` empty.
    Case(2, "the peak ratio is exported where the wire is known", share_of_the_wire, (9, 0, True)),
    # Before: OK for as long as it lasted.
    Case(2, "without a reference a collective is judged by this node's own history", own_history,
         {"probe.slower": F}),
    # Before: not a word.
    Case(2, "no expectation here is a gauge and a line, not a finding", nothing_expected,
         ({0.0}, True, True, {})),
    # Before: none of 2 A100, 4 B200 and 4 GB200.
    Case(2, "references of A100, B200, B300, GB200, NVL pairs and PCIe", references,
         {"2 A100": "published", "4 A100": "published", "4 B200": "published", "8 B300": "low",
          "4 GB200": "published", "2 H100 NVL": "low", "8 L40S on two sockets": "low"}),

    # Before: OK and 0, since the fault begins at 20 s.
    Case(3, "check --overlay nvlink-link-down", bundled("nvlink-link-down"), (F, 2)),
    # Before: OK and 0, since the first poll was the only one.
    Case(3, "check --overlay fabric-not-registered", bundled("fabric-not-registered"), (F, 2)),
    # Before: OK and 0, since no probe was played.
    Case(3, "check --overlay probe-slow", bundled("probe-slow"), (F, 2)),
    # Before: accepted, by a reading up to 300 s old.
    Case(3, "topology accept while a link is down looks first", link_down_while_accepting,
         (True, True, True)),
    # Before: suppressed, and jobs started without a word.
    Case(3, "findings suppress of a FAILED says that jobs may start and wants --yes", suppressed_failure,
         (True, True, False)),

    # Before: 503, "no job may start" and exit code 0 at once.
    Case(4, "UNKNOWN is answered by fail_on everywhere", may_start(U),
         {names: {"unknown" not in names} for names in places.SETS}),
    # Before: only check had fail_on, as an option.
    Case(4, "DEGRADED is answered by fail_on everywhere", may_start(D),
         {names: {"degraded" not in names} for names in places.SETS}),

    # Before: {"topology.nvlink_lost": FAILED}.
    Case(5, "enabling MIG on all GPUs", mig, {}),
    # Before: FAILED.
    Case(5, "a slow normal boot: fabric.state in progress for 75 s", slow_boot(5), {"fabric.state": U}),
    # Before: FAILED from the third poll on, with no grace to end.
    Case(5, "a fabric that does not register within 300 s", slow_boot(21), {"fabric.state": F}),
    # Before: no such setting.
    Case(5, "the grace of the fabric can be set", slow_boot(3, fabric_grace=0.0), {"fabric.state": F}),
    # Before: latched at the third boot within a week.
    Case(5, "three slow boots within a week", slow_boots(6, 6, 6), (OK, [])),
    # Before: latched.
    Case(5, "two slow boots after a fabric that had failed", slow_boots(25, 6, 6),
         (D, [(Stage.PROBATION, 1)])),
    # Before: FAILED.
    Case(5, "InfiniBand INIT while the subnet manager sweeps", sweep(4), {"infiniband.port_down": U}),
    # Before: FAILED from the third poll on.
    Case(5, "InfiniBand INIT for longer than 60 s", sweep(5), {"infiniband.port_down": F}),
    # Before: no such setting.
    Case(5, "the grace of a port can be set", sweep(5, port_grace=600.0), {"infiniband.port_down": U}),

    # Before: FAILED, by 25 GB/s a link.
    Case(6, "RTX A6000 at 14.0625 GB/s a link", bridged("NVIDIA RTX A6000"), ({}, {"nvlink.link_slow": F})),
    # Before: FAILED.
    Case(6, "A40 at 14.0625 GB/s a link", bridged("NVIDIA A40"), ({}, {"nvlink.link_slow": F})),
    # Before: FAILED.
    Case(6, "an Ethernet port switched off on purpose", switched_off, {"infiniband.port_disabled": D}),
    # Before: FAILED.
    Case(6, "one SXM GPU given to a VM with its links inactive", gpu_of_a_guest, {}),

    # Before: FAILED 25 h after a reboot.
    Case(7, "a finding of the node that names no series", without_a_series, OK),
    # Before: FAILED for ever, since no series named the part.
    Case(7, "the verdict never reads metrics", without_samples, (F, D)),

    # Before: {"xid.13": DEGRADED}, "ten times within a day: exchange it".
    Case(8, "one CUDA crash: XID 13, a line per SM, twelve in a millisecond", crash, ({}, [12])),
    # Before: "drain all GPUs of this domain".
    Case(8, "non-fatal SXid 20001",
         driver("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20001, Non-fatal, Link 1 TX Replay"), (D, False)),
    # Before: "drain all GPUs of this domain".
    Case(8, "XID 145 non-fatal",
         driver(xids.xid(145, rest="RLW_REMAP  Nonfatal XC1 i0 Link 00 (0x4 0x1)")), (D, False)),
    # Drained before too.
    Case(8, "XID 145 fatal",
         driver(xids.xid(145, rest="RLW_REMAP  Fatal XC1 i0 Link 00 (0x4 0x40)")), (F, True)),
    # Before: "drain p2p" was FAILED by NVML and DEGRADED by XID 154.
    Case(8, "recovery action and XID 154 say the same thing the same way", said_twice, []),

    # Before: "600 in 60 s".
    Case(9, "600 errors in six hours without a reading", after_six_hours(600), []),
    # Before: "36000 in 60 s".
    Case(9, "36000 errors in six hours without a reading", after_six_hours(36_000), ["errors: 36000 in 6 h"]),
    # Before: every other GPU was FAILED as destination.
    Case(9, "half the GPUs slow as sources, of eight and of four", half_slow,
         ({("straggler.source", str(n)) for n in range(4)}, *[["source 0", "source 1"]] * 2)),
    # Before: FAILED again.
    Case(9, "a corrected wall clock and an repaired XID", repaired_before, [D, OK]),
    # Before: repaired with the one before.
    Case(9, "a corrected wall clock and a new XID", new_after_a_correction, F),
    # Before: FAILED at once, since the jump dropped the suppression for good.
    Case(9, "one forward jump and a suppression", jump, (OK, OK, F)),

    # Before: UNKNOWN, where the policy exempted it.
    Case(10, "check --require-fresh-probe on a one-GPU node", fresh_probe(ONE_GPU), 0),
    # Before: UNKNOWN.
    Case(10, "check --require-fresh-probe on a MIG node",
         fresh_probe(TWO_GPUS, ("nvml", "gpu*/MigMode()", "set = [1, 1]")), 0),
    # Before: it passed the gate, and a probe ran beside it.
    Case(10, "a graphics process under 2 GiB at the gate", renderer, ("busy", 0)),
    # Before: KeyError: 'inventory', and exit code 70.
    Case(10, "check with the collector inventory off", without_inventory, (0, "OK", False)),
    # Before: all moments were read, and lost with a traceback.
    Case(10, "record into a folder that cannot be made", folder_that_cannot_be_made, (64, False, False)),
    # Before: all moments were lost silently.
    Case(10, "record and Ctrl-C", interrupted, (70, True, True)),
    # Before: eight findings headed by drift.blind.
    Case(10, "one missing driver is one finding", without_driver, (["inventory.blind"], True)),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}: {case.name}")
def test_what_was_wrong_is_right(case: Case, tmp_path: Path) -> None:
    assert case.provoke(tmp_path) == case.right


def test_each_kind_has_its_cases_in_order() -> None:
    numbers = [case.number for case in CASES]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, 11))
    assert len({case.name for case in CASES}) == len(CASES)
