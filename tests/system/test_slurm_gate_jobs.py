"""A hundred jobs of real Slurm on a node whose GPUs are a recording's: when the epilog probes, when not.

The epilogs are root's, as slurmd runs them; the daemon is another user's, as its unit has it.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.disks import OTHER
from tests.node.daemon.process import FAST
from tests.node.probe.histories import stored
from tests.system.cluster import Cluster
from tests.system.gate import Gate, Turn, holds_folder, slurm_lines
from wirewatch.probe.restore import probe_of

pytestmark = pytest.mark.system

NODE = "g1"
WHOLE, HALVES = 50, 12
"""Jobs on the whole node before and after those on half of it; beside these a long one has the other half."""
MAX_AGE = 8.0
"""Seconds, after which a probe is old."""
AS_OTHER = (
    *("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"),
    # Python may be installed where only root looks.
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)
CONFIG = """
[state]
directory = "{folder}/kept"
[slurm]
node = "{node}"
conf = "{folder}/slurm.conf"
[collectors.topology]
interval = 5.0
[probe]
interval = 0.5
holds = "{folder}/holds"
"""
PROGRAM = """\
#!/bin/bash
said=$({python} {entry} "$@" 2>> {folder}/stderr)
status=$?
[[ " $* " != *" --owner "* ]] || echo "$SLURM_JOB_ID $status $said" >> {folder}/said
printf '%s\\n' "$said"
exit $status
"""


@dataclass(frozen=True)
class Span:
    """Unix seconds on this node: of a job, from its prolog to the end of its epilog, or of a probe."""

    name: str
    began: float
    ended: float

    def meets(self, other: "Span") -> bool:
        return self.began < other.ended and other.began < self.ended


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = Cluster(folder, {NODE: 2}, slurm_lines(folder))
        with Gate(cluster) as made, cluster:
            entry = Path(__file__).parent / "gate_node.py"
            program = PROGRAM.format(python=sys.executable, entry=entry, folder=folder)
            (folder / "wirewatch").write_text(program, "utf-8")
            made.configure(
                f"CHECK_OPTIONS=(--config {folder}/wirewatch.toml)\nMAX_AGE={MAX_AGE:g}s\n"
                f"VERDICT={folder}/run/verdict\nHOLDS={holds_folder(folder / 'holds')}"
            )
            with daemon(made, entry):
                yield made
        cluster.wait(lambda: not cluster.processes())


@contextmanager
def daemon(gate: Gate, entry: Path) -> Iterator[None]:
    command: list[str | Path]
    folder = gate.folder
    for name in ("kept", "run"):
        (folder / name).mkdir()
        os.chown(folder / name, OTHER, OTHER)
    folder.chmod(0o755)
    config = FAST.replace('socket = ""', f'socket = "{folder}/run/wirewatch.sock"')
    config += CONFIG.format(folder=folder, node=NODE)
    (folder / "wirewatch.toml").write_text(config, "utf-8")
    command = [
        *AS_OTHER,
        sys.executable,
        entry,
        "serve",
        "--config",
        folder / "wirewatch.toml",
        "--listen",
        "127.0.0.1:0",
    ]
    with (folder / "daemon.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        gate.cluster.wait((folder / "run" / "verdict").exists)
        yield
    finally:
        process.terminate()
        process.wait(20)


def submit(gate: Gate, gpus: int, seconds: float) -> str:
    options = ["--exclusive"] if gpus == 2 else []
    return gate.cluster.submit(f"--gres=gpu:{gpus}", *options, node=NODE, command=f"sleep {seconds}")


def probes(gate: Gate) -> list[Span]:
    """All probes of the history, in their order."""
    found = []
    for record in stored(gate.folder / "kept" / "probes.sqlite"):
        probed = probe_of(record)
        assert probed is not None
        assert probed.outcome == "ok"
        found.append(Span(record.started_by, probed.at, record.at))
    return found


def on_node(gate: Gate, job: str) -> Span:
    prolog, epilog = gate.turn("prolog", job), gate.turn("epilog", job)
    assert (prolog.status, epilog.status) == (0, 0)
    return Span(job, prolog.began, epilog.ended)


def test_of_a_hundred_jobs_the_epilogs_probe_when_it_is_time_and_no_job_is_near(gate: Gate) -> None:
    began = time.monotonic()
    whole = [submit(gate, 2, 0.1) for _ in range(WHOLE)]
    halves = [submit(gate, 1, MAX_AGE * 2), *(submit(gate, 1, 1.0) for _ in range(HALVES))]
    whole += [submit(gate, 2, 0.1) for _ in range(WHOLE)]
    gate.cluster.wait(lambda: gate.cluster.tell("squeue", "-h") == "", 500)
    took = time.monotonic() - began
    print(f"{len(whole)} jobs on the whole node and {len(halves)} on halves took {took:.0f} s")
    jobs = {job: on_node(gate, job) for job in (*whole, *halves)}
    ran = probes(gate)
    print(f"{len(ran)} probes by {sorted({probe.name for probe in ran})}")
    _nobody_was_near(gate, ran, jobs)
    _never_old(gate, ran, whole)
    assert gate.drained() == {}
    assert [one.name for one in (gate.folder / "holds").iterdir()] == ["lock"]
    assert {one.stat().st_uid for one in (gate.folder / "kept").iterdir()} == {OTHER}
    assert "taken over from another process" in (gate.folder / "daemon.log").read_text("utf-8")


def test_a_job_probes_under_its_own_hold_and_not_under_that_of_another(gate: Gate) -> None:
    """As a user's job or another prolog would ask; the last probe is always too old."""
    folder = gate.folder
    ask = (
        f"SLURM_JOB_ID=$SLURM_JOB_ID {folder}/wirewatch check --config {folder}/wirewatch.toml --deadline 60s"
    )
    ask += " --owner slurm:$SLURM_JOB_ID --max-age 0s"
    alone = f"sleep 1.1; ls {folder}/holds > {folder}/held-$SLURM_JOB_ID; {ask}"
    job = gate.cluster.submit("--gres=gpu:2", "--exclusive", node=NODE, command=alone)
    gate.cluster.wait(lambda: gate.cluster.tell("squeue", "-h") == "", 120)
    assert f"slurm:{job}." in (folder / f"held-{job}").read_text("utf-8")
    asked = [
        line for line in (folder / "said").read_text("utf-8").splitlines() if line.startswith(f"{job} 0 OK")
    ]
    assert asked
    assert not [line for line in asked if "no probe" in line]
    beside = f"touch {folder}/holds/slurm:99999.$(($(cut -d. -f1 /proc/uptime) + 60)).all; {alone}"
    other = gate.cluster.submit("--gres=gpu:2", "--exclusive", node=NODE, command=beside)
    gate.cluster.wait((folder / f"held-{other}").exists, 120)
    gate.cluster.wait(lambda: gate.cluster.tell("squeue", "-h") == "", 120)
    said = (folder / "said").read_text("utf-8")
    assert re.search(rf"^{other} 0 OK\b.*no probe: .*\bslurm:99999 holds GPUs", said, re.MULTILINE)


def _nobody_was_near(gate: Gate, ran: list[Span], jobs: dict[str, Span]) -> None:
    """A probe meets the job whose epilog it is of and no other; where another held GPUs, none was run."""
    for probe in ran:
        met = [job for job in jobs.values() if job.meets(probe)]
        assert len(met) == 1, (probe, met)
        epilog = gate.turn("epilog", met[0].name)
        assert epilog.began < probe.began < probe.ended < epilog.ended
    said = (gate.folder / "said").read_text("utf-8")
    skipped = re.findall(r"^(\d+) 0 OK\b.*no probe: .*\bslurm:(\d+) holds GPUs", said, re.MULTILINE)
    print(f"{len(skipped)} times none was run, since another job held GPUs")
    assert skipped, "no job on a half ended while the last probe was old: nothing was shown"
    for job, other in skipped:
        assert jobs[job].meets(jobs[other])


def _never_old(gate: Gate, ran: list[Span], whole: list[str]) -> None:
    """When a job on the whole node has gone, the last probe is not older than it may be."""
    epilogs: list[Turn] = [gate.turn("epilog", job) for job in whole]
    for epilog in epilogs:
        last = max((probe.ended for probe in ran if probe.ended <= epilog.ended), default=0.0)
        assert last > epilog.began - MAX_AGE - 0.5, (epilog, last)
    gaps = [after.began - before.ended for before, after in pairwise(ran)]
    print(f"seconds between probes: {', '.join(f'{gap:.1f}' for gap in gaps)}")
    assert min(gaps) > MAX_AGE - 1
