"""The brake in a Slurm of 1,000 nodes: a fault beside forty repairs, then a bad release that fails all nodes.

    make brake-slurm

One slurmctld and 1,000 real slurmds on one machine. Root, and half an hour on two cores.
"""

import argparse
import os
import random
import re
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from tests.system.cluster import PATH, Cluster, tool
from tests.system.gate import Gate, daemons, slurm_lines
from tests.system.test_slurm_brake import ago, signed
from tools.prose import formatted
from wirewatch_fleet.controller.brake import allowed

PAGE = Path("proof/fleet/brake/slurm.md")
RACK, REPAIRS = 25, 40
PORT = 17001
"""Of the first slurmd; below those that the kernel gives to connections."""
SLOWER = {
    "HealthCheckInterval=2": "HealthCheckInterval=0", "PrologEpilogTimeout=120": "PrologEpilogTimeout=3000",
    "BatchStartTimeout=30": "BatchStartTimeout=3000", "MessageTimeout=10": "MessageTimeout=100",
}  # fmt: skip
"""One machine does the work of a thousand; slurmd's own health checks are left out, and run by hand."""
PATIENT = "SLURM_DEADLINE=2000; DEADLINE=200; LOGGER=/bin/true; WIREWATCH=/bin/false"
AT_ONCE = 16
"""Health checks by hand at a time."""


class Thousand(Cluster):
    """Its slurmds start a few at a time."""

    def _write(self) -> None:
        """Write the configuration, with ports that no program has for a connection meanwhile."""
        super()._write()
        ports = count(PORT)
        text = re.sub(r"Port=\d+(?= CPUs)", lambda _: f"Port={next(ports)}", self.conf.read_text("utf-8"))
        self.conf.write_text(text, "utf-8")

    def serve(self, node: str, *options: str) -> None:
        """Start the slurmd of a node."""
        super().serve(node, *options)
        time.sleep(0.02)

    def tell(self, name: str, *arguments: str) -> str:
        """What a command of Slurm's prints, for which it may take long."""
        done = subprocess.run(
            [tool(name), *arguments], env={"PATH": PATH, "SLURM_CONF": str(self.conf)}, cwd=self.folder,
            timeout=1500, check=False, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""

    def wait(self, wanted: Callable[[], bool], seconds: float = 1500.0) -> None:
        """Wait for longer, and look less often."""
        end = time.monotonic() + seconds
        while not wanted():
            assert time.monotonic() < end, "not within its time"
            time.sleep(2.0)


class Trial:
    """The cluster, what was drained at each look, and the rows of the page."""

    def __init__(self, gate: Gate, nodes: Sequence[str]) -> None:
        self.gate, self.nodes, self.rows = gate, nodes, list[tuple[str, str]]()
        self.repairs: set[str] = set()
        self.good = True

    def row(self, what: str, seen: str, *, good: bool) -> None:
        self.good &= good
        self.rows.append((what, seen))
        print(f"{what}: {seen}{'' if good else ' WRONG'}", flush=True)

    def drain(self, node: str, reason: str) -> None:
        self.gate.cluster.tell("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    def ours(self) -> dict[str, str]:
        """Reasons of what the scripts have drained in this trial, by node."""
        return {name: why for name, why in self.gate.drained().items() if name not in self.repairs}

    def repair(self) -> None:
        """Forty nodes in repair; Slurm's own clock says for all of them that they were drained just now."""
        self.repairs = set(random.Random(1).sample(self.nodes[100:], REPAIRS))  # noqa: S311 - no secret
        old = "GPU5 link3 wirewatch: nvlink.link_down GPU 5 link 3: inactive; 17 of 18 links up. drained "
        long_ago = signed(f"{old}2026-01-05T08:00:00Z")
        reasons = (long_ago, f"RMA 4711, was {long_ago}", "wirewatch: RMA 4712", "fans, ask Kim")
        for number, node in enumerate(sorted(self.repairs)):
            self.drain(node, reasons[number % len(reasons)])
        assert len(self.gate.drained()) == REPAIRS

    def next_fault(self) -> None:
        node = self.nodes[0]
        self.gate.health("failed", node)
        job = self.gate.cluster.submit(node=node, command="true")
        turn = self.gate.turn("prolog", job)
        reason = self.ours().get(node, "")
        shown = self.gate.cluster.tell("sinfo", "-h", "-R", "-n", node, "-o", "%20E").strip()
        self.row(
            f"one more node fails, with {REPAIRS} in repair",
            f"its job's prolog drained it ({turn.seconds:.1f} s); `sinfo -R` shows `{shown}`; "
            f"the reason: `{reason}`",
            good=turn.status == 1 and shown.startswith("GPU2 link7") and list(self.ours()) == [node],
        )
        self.gate.cluster.cancel()

    def storm(self) -> None:
        """A job for each node, while all are FAILED: as many prologs as nodes at once."""
        self.gate.health("failed")
        free = len(self.nodes) - REPAIRS - 1
        self.gate.cluster.tell(
            "sbatch", "--parsable", f"--array=1-{free}", "-N1", "--exclusive", "-o", "/dev/null",
            "-D", str(self.gate.folder), "--wrap", "sleep 3000",
        )  # fmt: skip
        began, most, looks = time.monotonic(), 0, 0
        while len(turns := prologs(self.gate.folder)) < free and time.monotonic() - began < 3000:
            most, looks = max(most, len(self.ours())), looks + 1
            time.sleep(3.0)
        took = time.monotonic() - began
        seconds, starts = sorted(one for one, _ in turns), sum(status == 0 for _, status in turns)
        self.row(
            "all nodes are FAILED, and each gets a job",
            f"{len(turns)} prologs within {took:.0f} s (median {statistics.median(seconds):.0f} s, longest "
            f"{seconds[-1]:.0f} s, of one machine); {most} drained at most in {looks} looks meanwhile, "
            f"{len(self.ours())} at their end; {starts} jobs started",
            good=len(turns) >= free,
        )
        unsure = sorted(
            file.parent.name.removeprefix("run-") for file in self.gate.folder.glob("run-*/unsure")
        )
        self.check(unsure)
        kept = self.ours()
        held = Counter(
            file.read_text("utf-8").split("\n")[0] for file in self.gate.folder.glob("run-*/brake")
        )
        self.row(
            "a health check of the nodes to which Slurm did not answer in time",
            f"{len(unsure)} health checks; {len(kept)} nodes are drained by wirewatch, the one of before "
            f"included; the brake holds by "
            f"{', '.join(f'{scope} {number}' for scope, number in sorted(held.items()))}",
            good=0 < len(kept) <= allowed("5%", len(self.nodes)),
        )
        self.spread(kept)

    def spread(self, kept: dict[str, str]) -> None:
        number = [int(name.removeprefix("g")) - 1 for name in kept]
        racks, pools = Counter(n // RACK for n in number), Counter(n * 2 // len(self.nodes) for n in number)
        half = len(self.nodes) // 2
        self.row(
            "where they are",
            f"{max(racks.values())} in one rack of {RACK} at most (2 may be), "
            f"{max(pools.values())} in one pool of {half} ({half // 10} may be)",
            good=max(racks.values()) <= 2 and max(pools.values()) <= half // 10,
        )

    def again(self, what: str, nodes: int, may: int) -> None:
        """Health checks of so many nodes that are held, some at a time."""
        before = self.ours()
        asked = [name for name in self.nodes if name not in before and name not in self.repairs][
            :: 960 // nodes
        ]
        self.check(asked)
        new = self.ours().keys() - before.keys()
        gone = before.keys() - self.ours().keys()
        good = len(new) <= may and not gone and len(new) > may // 2
        self.row(what, f"{len(asked)} health checks: {len(new)} more drained ({may} may be)", good=good)

    def check(self, nodes: Sequence[str]) -> None:
        """Health checks, some at a time."""
        for first in range(0, len(nodes), AT_ONCE):
            some = [self.gate.by_hand("healthcheck.sh", name) for name in nodes[first : first + AT_ONCE]]
            assert {one.wait(3000) for one in some} == {0}

    def an_hour_later(self) -> None:
        """Our reasons as an hour and a minute later; only their time is changed, as waiting would."""
        for name, reason in self.ours().items():
            self.drain(name, ago(reason, 3660.0))


def prologs(folder: Path) -> list[tuple[float, int]]:
    """Seconds and exit status of each prolog of the array."""
    file = folder / "turns"
    lines = [line.split() for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    return [
        (float(end) - float(began), int(status))
        for part, _, _, began, end, status in lines[1:]
        if part == "prolog"
    ]


def run(size: int) -> Trial:
    nodes = [f"g{number}" for number in range(1, size + 1)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        lines = slurm_lines(folder)
        for old, new in SLOWER.items():
            assert old in lines, old
            lines = lines.replace(old, new)
        lines += "TopologyPlugin=topology/tree\nSlurmdTimeout=3000\nTreeWidth=65533\n"
        half = size // 2
        lines += f"PartitionName=a Nodes=g[1-{half}]\nPartitionName=b Nodes=g[{half + 1}-{size}]\n"
        racks = range(size // RACK)
        (folder / "topology.conf").write_text(
            "".join(f"SwitchName=leaf{n} Nodes=g[{n * RACK + 1}-{(n + 1) * RACK}]\n" for n in racks)
            + f"SwitchName=top Switches=leaf[0-{len(racks) - 1}]\n", "ascii",
        )  # fmt: skip
        gate = Gate(Thousand(folder, dict.fromkeys(nodes, 0), lines))
        # The agents of a thousand nodes are three here, and must not wait for the storm.
        os.setpriority(os.PRIO_PROCESS, 0, -10)
        stack.enter_context(gate)
        stack.enter_context(daemons(folder))
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        gate.configure(PATIENT)
        for name in nodes:
            (folder / f"run-{name}").mkdir()
        began = time.monotonic()
        stack.enter_context(gate.cluster)
        trial = Trial(gate, nodes)
        trial.row("start", f"{size} slurmds idle after {time.monotonic() - began:.0f} s", good=True)
        trial.repair()
        trial.next_fault()
        trial.storm()
        trial.an_hour_later()
        trial.again("an hour later, all still FAILED", 160, 50)
        trial.an_hour_later()
        out = len(gate.drained())
        gate.configure(f"{PATIENT}; STOCK={out + 10}")
        trial.again(f"two hours later, with STOCK={out + 10} of {out} out of use", 40, 10)
    return trial


def page(trial: Trial, size: int) -> str:
    version = subprocess.run([tool("slurmctld"), "-V"], capture_output=True, text=True, check=True).stdout
    rows = "\n".join(f"| {what} | {seen.replace('|', '/')} |" for what, seen in trial.rows)
    passed = "all steps passed" if trial.good else "NOT all passed"
    return f"""# The brake in a Slurm of {size:,} nodes

Last result of `make brake-slurm`, {datetime.now(UTC):%Y-%m-%d}: {passed}. {version.strip()} of Debian,
{os.cpu_count()} processors, on which other programs ran too.

Real are slurmctld, {size:,} slurmds, the scripts and their settings by default: 5 % of the cluster, 10 % of
a pool, 10 % of a rack within an hour, 20 % in all. Simulated are the nodes: all slurmds share one machine,
and three agents that play a recording stand for all. Racks are leaf switches of {RACK} nodes, pools two
partitions of half the nodes. {REPAIRS} nodes are in repair, in four kinds: drained by wirewatch long ago, the
same with an edited reason, with the time edited away, and drained by a person. Slurm's clock says of all that
they were drained just now.

One machine does the work of {size:,}, so its times say little. Slurm's timeouts and `SLURM_DEADLINE` are
raised, and slurmd's own health checks are off. An hour passes by rewriting the time in our reasons.

| step | what was seen |
| -- | -- |
{rows}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="The brake in a Slurm of 1,000 nodes.")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    parser.add_argument("--nodes", type=int, default=1000)
    options = parser.parse_args()
    os.environ["PATH"] = f"{PATH}:{os.environ['PATH']}"
    trial = run(options.nodes)
    if options.write:
        PAGE.write_text(formatted(page(trial, options.nodes)), "utf-8")
    return 0 if trial.good else 1


if __name__ == "__main__":
    raise SystemExit(main())
