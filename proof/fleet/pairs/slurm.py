"""Rounds of pairs under a real Slurm, over wires that are slowed: is each fault named, and what survives?

    make pairs-slurm

Eight nodes in network namespaces with a veth each, of which tc's tbf holds the rate; slurmctld and eight
slurmds; `wirewatch fleet probe --slurm` with engine gloo. Root, half an hour on two cores.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from proof.fleet.pairs.faults import (
    LEAFS,
    NODES,
    RATE,
    WIRES,
    WORK,
    Outcome,
    Slowed,
    judged,
    printed,
    shared,
    shortened,
    slowed,
    table,
)
from tests.system.cluster import tool
from tests.system.namespaces import HashedWires, NamespacedCluster, Wires
from tools.prose import formatted
from wirewatch_fleet.pairs.document import ROUNDS, RoundsDocument

PAGE = Path("proof/fleet/pairs/slurm.md")
KEPT = PAGE.with_suffix(".json")
"""The last outcome of each row and its day: a row that is run anew takes the place of its last."""
WIREWATCH = Path(".venv-torch/bin/wirewatch").absolute()
SWITCHES = {"leaf1": "n[1-4]", "leaf2": "n[5-8]"}
OPTIONS = ("--slurm", *WORK)
SHARED = ("--iterations", "30", "--limit", "300s")
"""Pairs start seconds apart, and share a link only while both send."""
SETTINGS = """\
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=probes Nodes=ALL PriorityTier=1 MaxTime=10 State=UP
PartitionName=train Nodes=ALL PriorityTier=10 MaxTime=10 State=UP
"""


@dataclass
class Campaign:
    """`wirewatch fleet probe` on a cluster, with a file of results of its own."""

    cluster: NamespacedCluster
    results: Path

    def command(self, *options: str) -> list[str]:
        path = str(WIREWATCH)
        # All nodes have one file system here, but each has a lock of its own.
        state = f"{self.results.parent}/state-$SLURMD_NODENAME"
        script = f'mkdir -p {state} && STATE_DIRECTORY={state} exec {path} "$@"'
        on_nodes = shlex.join(["sh", "-c", script, "wirewatch"])
        given = ("--command", on_nodes, "--json", "--results", str(self.results))
        return [path, "fleet", "probe", *OPTIONS, *given, *options]

    def start(self, *options: str, within: Sequence[str] = ()) -> "subprocess.Popen[str]":
        environment = {**os.environ, "SLURM_CONF": str(self.cluster.conf)}
        return subprocess.Popen(
            [*within, *self.command(*options)],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def rounds(self) -> RoundsDocument:
        return ROUNDS.validate_json(self.results.read_bytes())

    def failures(self) -> set[str]:
        return {run.failed for one in self.rounds().rounds for run in one.runs if run.failed}

    def jobs(self) -> str:
        return self.cluster.tell("squeue", "--noheader", "--states=RUNNING,PENDING,SUSPENDED", "--format=%j")

    def begun(self) -> None:
        """Wait until a pair runs."""
        self.cluster.wait(
            lambda: (
                "wirewatch" in self.cluster.tell("squeue", "--noheader", "--states=RUNNING", "--format=%j")
            )
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Rounds of pairs under a real Slurm.")
    parser.add_argument("--write", action="store_true", help=f"write {KEPT} and {PAGE}")
    parser.add_argument("names", nargs="*", help="titles that begin so, alone")
    options = parser.parse_args()
    # It is ignored by what a script starts in its background, and by what that starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    wanted = tuple(options.names)
    runs = {one.title: partial(_faulty, one) for one in (*slowed(), *shared())}
    runs |= {title: partial(_survival, title, run) for title, run in SURVIVALS.items()}
    good = True
    for title, run in runs.items():
        if title.startswith(wanted or ""):
            outcome = run()
            good = good and outcome.good
            if options.write:
                _keep(outcome, tuple(runs))
    return 0 if good else 1


def _keep(outcome: Outcome, titles: Sequence[str]) -> None:
    """Keep the outcome of a row, and write the page of all rows that were ever run."""
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    kept[outcome.title] = {**asdict(outcome), "day": time.strftime("%Y-%m-%d")}
    kept = {title: kept[title] for title in titles if title in kept}
    KEPT.write_text(f"{json.dumps(kept, indent=1)}\n", "utf-8")
    days = [row.pop("day") for row in kept.values()]
    PAGE.write_text(
        formatted(_page([Outcome(**row) for row in kept.values()], min(days), max(days))), "utf-8"
    )


class Fabric:
    """Wires and a Slurm over them, for one run; with `uplinks` leafs share so many of them."""

    def __init__(self, uplinks: int = 0) -> None:
        self._stack = ExitStack()
        self._wires = HashedWires(LEAFS, RATE, uplinks) if uplinks else Wires(NODES, RATE)

    def __enter__(self) -> tuple[Wires, Campaign]:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="wirewatch-pairs-")))
        wires = self._stack.enter_context(self._wires)
        cluster = NamespacedCluster(folder, wires, SETTINGS, SWITCHES)
        self._stack.enter_context(cluster)
        return wires, Campaign(cluster, folder / "rounds.json")

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _faulty(one: Slowed) -> Outcome:
    began = time.monotonic()
    with Fabric(one.uplinks) as (wires, campaign):
        one.slow(wires)
        process = campaign.start(*(SHARED if one.uplinks else ()))
        out, errors = process.communicate(timeout=3000)
        assert process.returncode in {0, 1, 2, 3}, errors
        found = json.loads(out)
        left = campaign.jobs()
    good, words = judged(one, found)
    good = good and not left
    return printed(Outcome(one.title, good, words, time.monotonic() - began), errors)


def _survival(title: str, run: Callable[[Wires, Campaign], tuple[bool, str]]) -> Outcome:
    began = time.monotonic()
    with Fabric() as (wires, campaign):
        good, words = run(wires, campaign)
        campaign.cluster.wait(lambda: campaign.jobs() == "", 20)
    return printed(Outcome(title, good, words, time.monotonic() - began))


def _dies(wires: Wires, campaign: Campaign) -> tuple[bool, str]:
    """A node dies in a round: its slurmd and all that it started, and its wire."""
    process = campaign.start("--limit", "60s", "--rounds", "3")
    campaign.begun()
    campaign.cluster.process("slurmd-n5").kill()
    spool = str(campaign.cluster.folder / "spool-n5")
    for one in Path("/proc").glob("[0-9]*"):
        try:
            if spool in (one / "environ").read_text("utf-8", "replace") or _is_step(one, "n5"):
                os.kill(int(one.name), signal.SIGKILL)
        except OSError:
            continue
    subprocess.run([tool("ip"), "link", "set", wires.port("n5"), "down"], check=True)
    process.communicate(timeout=900)
    made = campaign.rounds()
    failed = {run.failed for one in made.rounds for run in one.runs if "n5" in {run.first, run.second}}
    others = [run for one in made.rounds for run in one.runs if "n5" not in {run.first, run.second}]
    answered = sum(not run.failed for run in others)
    good = bool(failed) and "" not in failed and answered == len(others) and process.returncode == 3
    why = "; ".join(map(shortened, sorted(failed)))
    return good, f"the run of n5: {why}; {answered} of {len(others)} other runs answered"


def _is_step(process: Path, node: str) -> bool:
    environment = (process / "environ").read_bytes().split(b"\0")
    return f"SLURMD_NODENAME={node}".encode() in environment


def _never(_: Wires, campaign: Campaign) -> tuple[bool, str]:
    """Jobs that are never admitted: the partition takes them and starts none."""
    campaign.cluster.tell("scontrol", "update", "partitionname=probes", "state=down")
    process = campaign.start("--partition", "probes", "--wait", "5s")
    process.communicate(timeout=200)
    failed = campaign.failures()
    left = campaign.jobs()
    good = all("not admitted within 5 s" in one for one in failed) and bool(failed) and not left
    return (
        good and process.returncode == 3,
        f"{'; '.join(sorted(failed))}; jobs left: {left.split() or 'none'}",
    )


def _interrupted(_: Wires, campaign: Campaign) -> tuple[bool, str]:
    """Ctrl-C in the second round, then the same command again."""
    process = campaign.start()
    campaign.cluster.wait(lambda: campaign.results.exists() and len(campaign.rounds().rounds) == 1, 300)
    campaign.begun()
    at = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    took = time.monotonic() - at
    campaign.cluster.wait(lambda: campaign.jobs() == "", 10)
    kept = campaign.rounds().rounds
    again = campaign.start()
    again.communicate(timeout=900)
    made = campaign.rounds().rounds
    good = len(kept) == 1 and made[:1] == kept and len(made) >= 3 and process.returncode == 3
    return (
        good,
        f"ended after {took:.1f} s, no job left, 1 round kept; the same command made it {len(made)} rounds",
    )


def _preempted(_: Wires, campaign: Campaign) -> tuple[bool, str]:
    """A user's job with priority takes a node in a round."""
    process = campaign.start("--partition", "probes", "--rounds", "3")
    campaign.begun()
    began = time.monotonic()
    job = campaign.cluster.submit("-p", "train", "--exclusive", node="n2", command="sleep 5")
    campaign.cluster.wait(
        lambda: (
            campaign.cluster.tell("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip() != "PENDING"
        )
    )
    took = time.monotonic() - began
    process.communicate(timeout=900)
    first = campaign.rounds().rounds[0]
    failed = {run.failed for run in first.runs if run.failed}
    good = len(failed) == 1 and "n2" in "".join(f"{r.first} {r.second}" for r in first.runs if r.failed)
    return good, f"the job runs after {took:.1f} s; the run of n2: {'; '.join(map(shortened, failed))}"


def _allocated(_: Wires, campaign: Campaign) -> tuple[bool, str]:
    """One round in an allocation: each pair is a step of it."""
    within = (tool("salloc"), "--quiet", f"--nodes={len(NODES)}", "--exclusive")
    process = campaign.start("--rounds", "1", within=within)
    seen: set[str] = set()
    while process.poll() is None:
        seen.update(campaign.cluster.tell("squeue", "--steps", "--noheader", "--format=%j %i").split("\n"))
        time.sleep(1.0)
    process.communicate()
    runs = [run for one in campaign.rounds().rounds for run in one.runs]
    steps = [one for one in seen if one.startswith("wirewatch-")]
    good = len(runs) == len(steps) == len(NODES) // 2 and not any(run.failed for run in runs)
    return (
        good,
        f"{len(steps)} steps of one job, {sum(not run.failed for run in runs)} of {len(runs)} runs answered",
    )


SURVIVALS = {
    "steps of an allocation": _allocated,
    "a node dies in a round": _dies,
    "jobs are never admitted": _never,
    "Ctrl-C in a round": _interrupted,
    "a job with priority comes": _preempted,
}


def _page(outcomes: Sequence[Outcome], first: str, last: str) -> str:
    """Return the page of rows that were run from the day `first` to the day `last`."""
    version = subprocess.run([tool("slurmctld"), "-V"], check=True, capture_output=True, text=True).stdout
    return f"""# Rounds of pairs under a real Slurm

`make pairs-slurm` made this page of runs from {first} to {last}, one try each. It ran
`wirewatch fleet probe --slurm` with a real {version.strip().replace("slurm-wlm", "Slurm")}: slurmctld,
and a slurmd for each node.

{WIRES}

{table(outcomes)}

What is done in rows without a slow wire:

- *a node dies in a round*: the slurmd of n5 and all its processes are killed and its wire is cut.
- *jobs are never admitted*: the partition takes jobs and starts none.
- *Ctrl-C in a round*: it comes in the second round. Then the same command is run again.
- *a job with priority comes*: a user's job on n2, in a partition that preempts that of the pairs.

In rows with hashed uplinks each leaf is a router of its own. Two links lead from the one to the other,
each as fast as a node's wire, and the kernel hashes each flow onto one of them (ECMP, by addresses and
ports). So pairs across leafs that send at once share a link, or do not, differently in each run. Such a row
is as it should be where a collision is told, no healthy node or pair is named, and n3 is where it is
slow. Its pairs measure 30 times instead of 10.

Not shown by this: real NICs, NCCL, RDMA, more than one machine, more than eight nodes, other versions of
Slurm. Seconds include the start of Slurm.
"""


if __name__ == "__main__":
    sys.exit(main())
