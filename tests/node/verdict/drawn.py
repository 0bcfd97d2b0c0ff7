"""A node drawn by hand: what its collectors tell at each look, and what the ledger makes of it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from wirewatch.catalogue import components, rule_of
from wirewatch.collectors.gpu import GpuFacts
from wirewatch.collectors.infiniband import InfinibandFacts
from wirewatch.collectors.inventory import InventoryFacts, KnownGpu
from wirewatch.core.collector import Component, NodeState, Observed, blind_finding
from wirewatch.core.fold import Step, after, overdue
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Failed, Finding, Health, Ok, OperatorNote, Subject, Why
from wirewatch.daemon.persistence import read_ledger, save_ledger
from wirewatch.verdict.latching import step
from wirewatch.verdict.ledger import Entry, Key, Ledger, Now, Probes, Stage, VerdictPolicy, key_of
from wirewatch.verdict.node import Standing, Verdict, judge_node
from wirewatch.verdict.orders import acknowledge, pick, repaired, suppress, unsuppress

D, U, F = Health.DEGRADED, Health.UNKNOWN, Health.FAILED
EPOCH = 1_795_223_090.0
HUNG = Absent(Why.TIMEOUT, "the driver timed out", 10)
GONE = Absent(Why.LOST, "was here before, is no longer listed")
COLLECTORS = ("inventory", "nvlink", "gpu", "pcie", "xid", "infiniband", "gpudirect", "probe")


@cache
def collector_of(rule: str) -> str:
    """Whose rule it is, or whose are others of its family."""
    family = rule.partition(".")[0]
    owners = (one.name for one in components() if rule_of(rule, one.rules))
    kin = (one.name for one in components() if any(r.name.startswith(f"{family}.") for r in one.rules))
    return next(owners, None) or next(kin, family)


def address(uuid: str) -> str:
    """The PCI address of a GPU."""
    return f"0000:{ord(uuid[-1]):02x}:00.0"


def reloaded(ledger: Ledger, boot: str) -> Ledger:
    """What a file keeps of a ledger."""
    entries = {key: replace(entry, mono=None) for key, entry in ledger.entries.items()}
    return replace(ledger, boot=boot, entries=entries, complete=0, occurrences={}, present=frozenset())


class Drawn:
    """Two GPUs and two ports, unless told otherwise; time moves with each look.

    `gpus` in the order of their indexes. `found`: what is wrong, told while its part is read, or known from
    before. `wants`: GPUs whose driver asks for a reset. `mute`: names of GPUs and devices of which no series
    tells. `down`: collectors that fail, and why; `waiting`: not read yet.
    """

    def __init__(
        self, folder: Path | None = None, *, gpus: tuple[str, ...] = ("GPU-a", "GPU-b"),
        ports: tuple[str, ...] = ("mlx5_0", "mlx5_1"), **policy: object,
    ) -> None:  # fmt: skip
        self.policy = VerdictPolicy(**policy)  # type: ignore[arg-type]
        self.folder = folder
        self.gpus, self.ports = list(gpus), list(ports)
        self.down_ports: set[str] = set()
        self.at, self.mono = EPOCH, 1000.0
        self.boot = "boot-1"
        self.wants: set[str] = set()
        self.mute: set[str] = set()
        self.down: dict[str, Absent] = {}
        self.waiting: set[str] = set()
        self.found: dict[tuple[str, Subject], Finding] = {}
        self.known: set[Key] = set()
        self.probes = Probes(0, clean=False, watched=False)
        self.ledger = Ledger(self.boot)
        self.state = self._fresh()
        self.recovery_told = True

    @staticmethod
    def _fresh() -> NodeState:
        return NodeState({name: Component(name, None) for name in COLLECTORS})

    # What is there

    def gpu(self, uuid: str = "GPU-a", **levels: str) -> Subject:
        return Subject(gpu=str(self.gpus.index(uuid)) if uuid in self.gpus else "9", uuid=uuid, **levels)

    def find(
        self, rule: str, part: Subject, health: Health = F, last: float = 0.0, stamp: float | None = None
    ) -> None:
        """Something is found; told with another time, but without a stamp, it is the event that is known."""
        known = self.found.get((rule, part))
        if stamp is None:
            stamp = known.stamp if known and last else 0.0
        self.found[rule, part] = Finding(
            rule, health, part, f"evidence of {rule}", "repair it", last, last, stamp
        )

    def event(self, rule: str, part: Subject, health: Health = F) -> None:
        """Something happens now, and is told from now on."""
        self.find(rule, part, health, self.at + 15.0, self.mono + 15.0)

    def end(self, rule: str, part: Subject) -> None:
        """Whoever tells of an event calls it over."""
        told = self.found[rule, part]
        self.found[rule, part] = replace(told, health=D)

    def clear(self, rule: str, part: Subject) -> None:
        self.found.pop((rule, part), None)

    def fall_off(self, uuid: str) -> None:
        """A GPU is no longer listed, and whoever knew it misses it."""
        part = self.gpu(uuid)
        self.gpus.remove(uuid)
        self.known.add(key_of("gpu.lost", part))
        self.found["gpu.lost", part] = Finding("gpu.lost", F, part, str(GONE), "drain")
        for name in ("nvlink", "gpu", "pcie"):
            self.found[f"{name}.blind", part] = blind_finding(name, part, GONE)
            self.known.add(key_of(f"{name}.blind", part))

    def come_back(self, uuid: str) -> None:
        self.gpus.append(uuid)
        self.found = {key: f for key, f in self.found.items() if key[1].uuid != uuid}

    def probed(self, *, clean: bool = True) -> None:
        """One more complete probe."""
        self.probes = Probes(self.probes.complete + 1, clean, watched=True)

    # Looking

    def look(self, seconds: float = 15.0, times: int = 1) -> Verdict:
        """So many looks, each so many seconds after the one before; the verdict after the last."""
        for _ in range(times):
            self.at += seconds
            self.mono += seconds
            for name in COLLECTORS:
                self.poll(name)
            self.step()
        return self.verdict

    def poll(self, name: str) -> None:
        if name not in self.waiting:
            self.state = self.state.with_component(self._polled(self.state.components[name]))

    def hang(self, name: str) -> None:
        """The collector's turn does not end."""
        self.state = self.state.with_component(overdue(self.state.components[name], self.at, 10.0))

    def _polled(self, component: Component) -> Component:
        name = component.name
        if name in self.down:
            failed = Failed(self.down[name], self.at, self.mono)
            return after(component, Step(failed, 0.0, None, (), (), None))
        found = tuple(f for f in self._findings() if collector_of(f.rule) == name and self._tells(f))
        self.known |= {key_of(f.rule, f.subject) for f in found}
        ok, seen = Ok(None, self.at, self.mono), self._observed(name)
        applicable = bool(seen.gpus or seen.devices or found) or name in {"xid", "gpudirect", "probe"}
        step = Step(ok, 0.0, None, found, (), applicable, facts=self._facts(name), observed=seen)
        return after(component, step)

    def _shown(self) -> list[str]:
        return [uuid for uuid in self.gpus if uuid not in self.mute]

    def _observed(self, name: str) -> Observed:
        gpus = frozenset(Subject(gpu=str(self.gpus.index(uuid)), uuid=uuid) for uuid in self._shown())
        if name == "infiniband":
            ports = (Subject(device=one, port="1") for one in self.ports if one not in self.mute)
            return Observed(frozenset(), frozenset(ports))
        return Observed() if name == "gpudirect" else Observed(gpus, None if name == "xid" else frozenset())

    def _facts(self, name: str) -> object:
        if name == "inventory":
            gpus = [Gpu(self.gpus.index(uuid), uuid, address(uuid)) for uuid in self._shown()]
            known = {gpu.key: KnownGpu(gpu, {}) for gpu in gpus}
            return InventoryFacts(known, frozenset(), {}, frozenset(known))
        if name == "gpu":
            return GpuFacts(frozenset(self._shown() if self.recovery_told else ()) - self.wants)
        if name == "infiniband":
            return InfinibandFacts({}, {}, frozenset((one, "1") for one in self.down_ports))
        return None

    def _tells(self, finding: Finding) -> bool:
        """Whether its collector can know of it: it reads the part, or did so since it was started."""
        part = finding.subject
        away = bool(part.uuid) and part.uuid not in self.gpus
        unread = away or not self.mute.isdisjoint({part.uuid, part.device})
        return not unread or key_of(finding.rule, part) in self.known or bool(finding.last)

    def _findings(self) -> Iterator[Finding]:
        yield from self.found.values()
        for uuid in sorted(self.wants & set(self.gpus)):
            yield Finding("gpu.recovery_action", F, self.gpu(uuid), "asks for gpu reset", "reset it")

    # What becomes of it

    def now(self) -> Now:
        return Now(self.at, self.mono, self.probes)

    def step(self) -> None:
        self.ledger = step(self.ledger, self.state, self.now(), self.policy)

    @property
    def verdict(self) -> Verdict:
        return judge_node(self.state, self.ledger)

    @property
    def health(self) -> Health:
        return self.verdict.health

    def entry(self, rule: str, part: Subject) -> Entry:
        return self.ledger.entries[key_of(rule, part)]

    def stage(self, rule: str, part: Subject) -> Stage | None:
        found = self.ledger.entries.get(key_of(rule, part))
        return found.stage if found else None

    def standing(self, rule: str, part: Subject) -> Standing | None:
        wanted = key_of(rule, part)
        return next((s for s in self.verdict.standings if s.key == wanted), None)

    # What people and machines do

    def restart(self, boot: str | None = None, down: float = 20.0) -> None:
        """The daemon ends and starts again, by way of its file if there is a folder; nothing was read yet."""
        self.boot = boot or self.boot
        if self.folder is None:
            self.ledger = reloaded(self.ledger, self.boot)
        else:
            path = self.folder / "latches.json"
            assert save_ledger(path, self.ledger, self.at) == ""
            self.ledger = read_ledger(path, self.boot, self.at, own=True)
        self.at += down
        self.mono += down
        self.probes = Probes(0, clean=False, watched=self.probes.watched)
        self.state = self._fresh()
        self.known.clear()

    def reboot(self, boot: str = "boot-2") -> None:
        """The machine starts again: its kernel log is empty, its monotonic clock starts again."""
        self.found = {key: f for key, f in self.found.items() if not f.last}
        self.wants = set()
        self.restart(boot, down=180.0)
        self.mono = 60.0

    def ack(self, rule: str, part: Subject) -> None:
        said = OperatorNote("bob", "seen, looking at it", self.at)
        self.ledger = acknowledge(self.ledger, self._picked(rule, part), said)
        self.step()

    def repaired(self, rule: str, part: Subject) -> None:
        said = OperatorNote("ann", "cable exchanged", self.at)
        self.ledger = repaired(self.ledger, self._picked(rule, part), said, self.mono)
        self.step()

    def suppress(self, rule: str, part: Subject, seconds: float = 3600.0) -> None:
        said = OperatorNote("ann", "waiting for a part", self.at)
        one = self._picked(rule, part)
        until = self.at + seconds
        self.ledger = suppress(self.ledger, one, until, said, self.policy, self.mono)
        self.step()

    def unsuppress(self, rule: str, part: Subject) -> None:
        self.ledger = unsuppress(self.ledger, self._picked(rule, part))
        self.step()

    def _picked(self, rule: str, part: Subject) -> Standing:
        standing = self.standing(rule, part)
        assert standing is not None, f"{rule} of {part} is not shown"
        return pick(self.verdict, standing.id)
