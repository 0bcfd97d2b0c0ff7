"""A healthy day, squeezed: everything that happens to a fleet that is well, and nothing may fire.

Six nodes boot, get a new agent one by one, then a new driver under `wirewatch release`; two are busy for a
week; Prometheus is restarted; a NIC is given to a pod and comes back; one node reboots. At the end it loses a
link: the one alert of the day, which shows that somebody was listening.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from proof.rehearsal.expected import CRITICAL, Alert, Change
from proof.rehearsal.fleet import Fleet, fleet
from proof.rehearsal.judge import lives, named
from proof.rehearsal.node import Node
from proof.rehearsal.overlays import Span, bundled, ending
from proof.rehearsal.squeeze import squeezed

MINUTE, DAY = 60.0, 86400.0
NODES = tuple(f"day-{number}" for number in range(1, 7))
BUSY, POD, REBOOTS = NODES[:2], NODES[2], NODES[3]
BETWEEN = squeezed(2 * MINUTE)
"""Between two nodes of a rollout."""
WEEK = squeezed(7 * DAY)
BUSY_FROM = 45.0
"""Seconds after a node has booted: its first probe is complete, and a job of a week begins."""
UPGRADE, LENT_FROM, UPGRADE_BUSY = 80.0, 140.0, 35.0
"""Seconds after a node's new agent was started: its new driver, its NIC's journey; a driver after a job."""
SETTLED = squeezed(20 * MINUTE)
"""After something that happened to all: what takes a quarter of an hour to fire would have fired."""
WITHOUT_DRIVER = squeezed(4 * MINUTE)
DOWN = squeezed(6 * MINUTE)
"""A node that reboots; an agent that is down for ten minutes is a ticket."""
LENT = squeezed(10 * MINUTE)
JOB = Span(BUSY_FROM, BUSY_FROM + WEEK)
SOON = 6.0
"""Seconds from an order until what it was given for begins, and from its end until it is taken back."""
NEW_DRIVER = "580.173.02"
SPARE, LATEST = 10.0, 60.0
"""Seconds for which the lost link waits for a busy machine, and within which its finding must appear."""
BOOTED: Change = {"port": "host", "match": "BootId()", "set": "00000000-0000-4000-8000-00000000b007"}
NO_DRIVER = 9
"""NVML's code where no driver is loaded."""
NEW: Sequence[Change] = ({"port": "nvml", "match": "SystemGetDriverVersion()", "set": NEW_DRIVER},)
CANARY = Alert("WirewatchNVLinkDown", CRITICAL, (("node", REBOOTS), ("gpu", "2"), ("link", "7")))


@dataclass(frozen=True, slots=True)
class Step:
    """What happened, and for how many seconds it took with all that came of it."""

    about: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Lived:
    """Nothing in `troubles` is a pass."""

    steps: tuple[Step, ...]
    troubles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """That something of the day did happen, by what Prometheus kept; on how many nodes."""

    about: str
    query: str
    nodes: int


PROOFS = (
    Proof(
        "agents that were started again",
        "sum by (node) (resets(wirewatch_agent_cpu_seconds_total[{day}])) >= 1", 6,
    ),
    Proof(
        "nodes whose GPUs were released",
        "max_over_time(wirewatch_released_until_timestamp_seconds[{day}]) > 0", 6,
    ),
    Proof("nodes with the new driver", f'wirewatch_node_info{{driver="{NEW_DRIVER}"}}', 6),
    Proof(
        "nodes without a probe for a week",
        "max_over_time((time() - (wirewatch_probe_last_success_timestamp_seconds > 0))[{day}:1s]) "
        f"> {WEEK}", 2,
    ),
    Proof(
        "nodes with a NIC away",
        'max_over_time(wirewatch_rdma_device_away_info{device="mlx5_4"}[{day}]) == 1', 1,
    ),
)  # fmt: skip


def upgraded(at: float) -> list[Change]:
    """A driver that is unloaded `at` seconds of play, and comes back as another version."""
    back = at + WITHOUT_DRIVER
    gone = {"from": at, "until": back}
    return [
        {"port": "nvml", "match": "*", "code": NO_DRIVER, **gone},
        {"port": "sysfs", "match": "read /proc/driver/nvidia/version", "errno": "ENOENT", **gone},
        {"port": "sysfs", "match": "read /sys/module/nvidia*", "errno": "ENOENT", **gone},
        {"port": "nvml", "match": "SystemGetDriverVersion()", "set": NEW_DRIVER, "from": back},
    ]


def job(span: Span) -> list[Change]:
    return [{**change, "from": span.begin, "until": span.end} for change in bundled("gpu-busy")]


def upgrade_at(name: str, working: float) -> float:
    """Seconds of the new agent's play; a node that works for so many seconds gets its driver after that."""
    return working + UPGRADE_BUSY if name in BUSY else UPGRADE


def rest_of_the_day(name: str, working: float) -> list[Change]:
    """What happens on a node once it has its new agent."""
    lent = ending(bundled("nic-moved"), Span(LENT_FROM, LENT_FROM + LENT)) if name == POD else ()
    works = job(Span(0.0, working)) if name in BUSY else ()
    return [*upgraded(upgrade_at(name, working)), *works, *lent]


class Day:
    """The day of one fleet; a step at a time, each reported when it is over."""

    def __init__(self, watched: Fleet) -> None:
        self._fleet = watched
        self._nodes = {name: watched.node(name) for name in NODES}
        self._upgrades: dict[str, float] = {}
        self._began = time.time()
        self._last = self._began
        self.steps: list[Step] = []

    def live(self) -> list[str]:
        """The whole day; what is wrong with it."""
        with ExitStack() as stack:
            for node in self._nodes.values():
                stack.enter_context(node)
            self._boot()
            self._new_agents()
            with ThreadPoolExecutor(len(NODES)) as pool:
                upgrades = [pool.submit(self._new_driver, node) for node in self._nodes.values()]
                self._restart_prometheus()
                upgrades[NODES.index(REBOOTS)].result()
                self._reboot()
                for upgrade in upgrades:
                    upgrade.result()
            self._done(
                "a new driver under `wirewatch release`, node by node, two after a week with a job;"
                " a NIC was lent for 10 min meanwhile"
            )
            time.sleep(SETTLED)
            self._done("nothing for 20 min")
            return [*self._strange(), *self._unproven(), *self._canary(), *self._fleet.prometheus.troubles()]

    def _done(self, about: str) -> None:
        now = time.time()
        self.steps.append(Step(about, now - self._last))
        self._last = now

    def _start(self, node: Node, changes: Sequence[Change] = (), listen: str = "127.0.0.1:0") -> None:
        with self._fleet.starting:
            node.start(changes, listen=listen)
            node.daemon.ready()

    def _boot(self) -> None:
        for node in self._nodes.values():
            self._start(node, job(JOB) if node.name in BUSY else ())
            self._fleet.prometheus.add(node.name, node.address)
        time.sleep(SETTLED)
        self._done("six nodes boot, and 20 min")

    def _new_agents(self) -> None:
        for name, node in self._nodes.items():
            address = node.address
            node.stop()
            booted = node.began
            working = booted + JOB.end - time.time()
            self._start(node, rest_of_the_day(name, working), address)
            self._upgrades[name] = node.began + upgrade_at(name, working)
            time.sleep(BETWEEN)
        self._done("a new agent, node by node")

    def _new_driver(self, node: Node) -> None:
        at = self._upgrades[node.name]
        time.sleep(max(0.0, at - SOON - time.time()))
        node.order("release", "--for", f"{WITHOUT_DRIVER + BETWEEN + SOON:.0f}s")
        assert time.time() < at, f"{node.name}: released only when its driver had gone"
        time.sleep(max(0.0, at + WITHOUT_DRIVER + SOON - time.time()))
        node.order("release", "--end")

    def _restart_prometheus(self) -> None:
        self._fleet.prometheus.stop()
        time.sleep(squeezed(MINUTE))
        self._fleet.prometheus.start()
        self._done("Prometheus is restarted")

    def _reboot(self) -> None:
        node = self._nodes[REBOOTS]
        address = node.address
        node.stop()
        time.sleep(DOWN)
        broken = ending(bundled("nvlink-link-down"), Span(self._until_canary(), 1e6))
        self._start(node, [BOOTED, *NEW, *broken], address)
        self._done("a node reboots")

    def _until_canary(self) -> float:
        """Seconds from now until the last step is over, and nothing has happened for a while."""
        return max(self._upgrades.values()) + WITHOUT_DRIVER + 2 * SOON + SETTLED + SPARE - time.time()

    def _strange(self) -> list[str]:
        return [
            f"{named(life[0])} fired on {life[0].labels.get('node', 'the fleet')}, and should not"
            for life in lives(self._fleet.receiver.every())
        ]

    def _unproven(self) -> list[str]:
        day = f"{time.time() - self._began:.0f}s"
        found = [(p, len(self._fleet.prometheus.query(p.query.replace("{day}", day)))) for p in PROOFS]
        return [f"{p.about}: {count} of {p.nodes}" for p, count in found if count != p.nodes]

    def _canary(self) -> list[str]:
        """The link that is lost at the end: that alone, and nothing if no part listened."""
        fired = self._fleet.receiver.wait(REBOOTS, lambda told: any(map(CANARY.is_told_by, told)), LATEST)
        others = [life for life in lives(self._fleet.receiver.every()) if not CANARY.is_told_by(life[0])]
        self._done("a link is lost, which must fire")
        missing = [] if fired else [f"{CANARY} never fired: nobody was listening"]
        return [*missing, *(f"{named(life[0])} fired beside it" for life in others)]


def live(folder: Path, starting: threading.Semaphore) -> Lived:
    """The healthy day, with a Prometheus of its own, since that is restarted."""
    with fleet(folder, None, starting) as watched:
        day = Day(watched)
        try:
            troubles = day.live()
        except Exception as error:  # noqa: BLE001 - reported, and the faults go on
            troubles = [f"the rehearsal itself failed: {type(error).__name__}: {error}"]
        return Lived(tuple(day.steps), (*troubles, *watched.receiver.troubles))
