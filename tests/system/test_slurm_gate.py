"""wirewatch's scripts for Slurm in the real Slurm of Debian, asking real daemons that play recordings."""

import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.cli import gatefile, replies
from tests.node.cli.gatefile import written
from tests.system.cluster import Cluster, tool
from tests.system.gate import SCRIPTS, Gate, daemons, slurm_lines

pytestmark = pytest.mark.system

NODES = ("g1", "g2", "g3", "g4", "g5", "g6", "g7", "g8")
REASON = "GPU2 link7 wirewatch: nvlink.link_down GPU 2 link 7: inactive; 17 of 18 links up."
HANGS = 300
"""Seconds that a check hangs which ends by itself at all."""
PATIENCE = 60.0
"""Seconds for a script that waits for no check that hangs, on a machine with much else to do."""
SLACK = 0.3
"""Seconds by which bash's whole ones may make a deadline shorter."""
MISBEHAVING = {
    "sleeps": f"exec sleep {HANGS}",
    "ignores SIGTERM": "trap '' TERM INT HUP; while :; do sleep 1; done",
    "is stopped": "kill -STOP $$",
    # As one in the hands of a driver or a file system, it outlives SIGKILL: who would send it is stopped too.
    "cannot be killed": "kill -STOP 0",
    "leaves somebody with its output": f"setsid sleep {HANGS}; exit",
}
CRASHING = {
    "wrong usage": "echo 'wirewatch: no such option' >&2; exit 64",
    "internal error": "echo Traceback >&2; exit 70",
    "wrong configuration": "echo 'wirewatch: unknown key' >&2; exit 78",
    "a signal": "kill -SEGV $$",
    "a shell's error": "echo 'line 2: syntax error' >&2; exit 2",
    "Python's error": "echo Traceback >&2; exit 1",
    "a word without its status": "echo 'FAILED nvlink.link_down'; exit 3",
    "no word": "exit 0",
    "noise": "head -c 100000 /dev/urandom; exit 2",
}


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = Cluster(folder, dict.fromkeys(NODES, 2), slurm_lines(folder))
        with Gate(cluster) as made, daemons(folder), cluster:
            yield made
        cluster.wait(lambda: not cluster.processes())


@pytest.fixture(autouse=True)
def _fresh(gate: Gate) -> Iterator[None]:
    gate.reset()
    yield
    gate.end_leftovers()
    assert gate.printed() == ""


NO_FILE = "VERDICT=no"
"""Of the configuration: each script asks `wirewatch check`."""
OLD_PROBE = "MAX_AGE=0s"
"""Of the configuration: whichever probe there is, the epilog asks for another."""


def in_prolog(script: str) -> str:
    """A check that misbehaves in a prolog alone."""
    return f'[[ " $* " != *" --cached "* ]] || {{ {script}; }}'


def test_a_healthy_node_starts_its_jobs_at_once_and_in_silence(gate: Gate) -> None:
    gate.configure(OLD_PROBE)
    job = gate.submit("g1")
    gate.cluster.wait(lambda: gate.ran(job))
    prolog, epilog = gate.turn("prolog", job), gate.turn("epilog", job)
    assert (prolog.status, epilog.status) == (0, 0)
    # The prolog read the file.
    (asked,) = gate.asked("g1")
    assert f"--owner slurm:{job} --max-age 0s" in asked
    assert gate.syslog() == ""


def test_where_no_file_is_kept_the_daemon_is_asked(gate: Gate) -> None:
    for more in (NO_FILE, "VERDICT=", f"VERDICT={gate.folder}/none", "GATE_OPTIONS=()", "GATE_OPTIONS=(-x)"):
        gate.configure(more)
        for script, health in (("prolog.sh", "ok"), ("healthcheck.sh", "degraded")):
            gate.health(health, "g1")
            assert gate.by_hand(script, "g1", SLURM_JOB_ID="7").wait(PATIENCE) == 0
    asked = gate.asked("g1")
    assert len(asked) == 10
    assert "--deadline 25s --cached --fail-on failed" in asked[0]
    # The health check has time of its own.
    assert "--deadline 40s --cached --fail-on failed,unknown" in asked[1]
    assert gate.syslog() == ""


def test_no_daemon_is_asked_where_the_file_says_it(gate: Gate) -> None:
    gate.misbehave("g1", "exit 70")
    gate.health("failed", "g1")
    assert gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID="7").wait(PATIENCE) == 1
    assert gate.drained()["g1"].startswith(REASON)
    gate.health("ok", "g1")
    assert gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID="8").wait(PATIENCE) == 0
    assert gate.by_hand("healthcheck.sh", "g1").wait(PATIENCE) == 0
    assert gate.drained() == {}
    assert gate.asked("g1") == []


def test_an_unfit_node_is_drained_and_its_job_runs_once_it_is_repaired(gate: Gate) -> None:
    gate.health("failed", "g1")
    job = gate.submit("g1")
    assert gate.turn("prolog", job).status == 1
    gate.cluster.wait(lambda: job_state(gate, job) == "PENDING")
    assert gate.drained()["g1"].startswith(REASON)
    gate.told(f"prolog of job {job} on g1: drained: FAILED nvlink.link_down")
    gate.watch("g1")
    gate.cluster.wait(lambda: len(gate.turns("healthcheck")) > 1)
    assert gate.drained()["g1"].startswith(REASON)
    assert not gate.ran(job)
    gate.health("degraded", "g1")
    gate.cluster.wait(lambda: not gate.drained())
    gate.told("resumed, it was drained for: " + REASON)
    gate.cluster.wait(lambda: gate.ran(job))
    assert " Restarts=1 " in gate.cluster.tell("scontrol", "show", "job", job)


def job_state(gate: Gate, job: str) -> str:
    return gate.cluster.tell("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()


def test_a_hung_check_does_not_hold_the_prolog_and_the_job_starts(gate: Gate) -> None:
    gate.configure(f"{NO_FILE}; DEADLINE=3")
    jobs = {}
    for node, (how, script) in zip(NODES, MISBEHAVING.items(), strict=False):
        gate.misbehave(node, in_prolog(script))
        jobs[how] = gate.submit(node)
    gate.cluster.wait(lambda: all(gate.ran(job) for job in jobs.values()))
    for how, job in jobs.items():
        prolog = gate.turn("prolog", job)
        assert prolog.status == 0, how
        assert 3 - SLACK < prolog.seconds < PATIENCE, how
        # slurmd goes on: nobody holds a pipe of its own.
        assert (gate.folder / f"ran-{job}").stat().st_mtime - prolog.ended < PATIENCE, how
        gate.told(
            f"job {job} on {prolog.node}: the job starts, wirewatch gave no verdict: no answer within 3 s"
        )
    assert gate.drained() == {}


def test_of_checks_that_cannot_be_killed_there_are_never_many(gate: Gate) -> None:
    gate.configure(f"{NO_FILE}; DEADLINE=3")
    gate.misbehave("g1", "kill -STOP 0")
    checks = [gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID=f"{8 * n}") for n in range(1, 4)]
    assert [check.wait(PATIENCE) for check in checks] == [0, 0, 0]
    last = gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID="80")
    assert last.wait(PATIENCE) == 0
    assert len(gate.asked("g1")) == 1
    gate.told("an earlier check does not end")


@pytest.mark.parametrize("how", CRASHING)
def test_a_check_that_crashes_starts_the_job(gate: Gate, how: str) -> None:
    gate.configure(NO_FILE)
    gate.misbehave("g1", CRASHING[how])
    assert gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID="7").wait(PATIENCE) == 0
    gate.told("prolog of job 7 on g1: the job starts, wirewatch gave no verdict: ")
    assert gate.drained() == {}


@pytest.mark.parametrize(
    "lines",
    [
        "WIREWATCH={folder}/missing",
        "WIREWATCH={folder}",
        "WIREWATCH=",
        "RUN=/proc/nowhere",
        "CHECK_OPTIONS=(--unknown)",
        "FAIL_ON=sick",
        'echo "',
        "DEADLINE=soon; WIREWATCH=/missing",
    ],
)
def test_what_is_installed_wrongly_starts_the_job(gate: Gate, lines: str) -> None:
    gate.configure(f"{NO_FILE}\n{lines.format(folder=gate.folder)}")
    gate.health("failed", "g1")
    status = gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID="7").wait(PATIENCE)
    if 'echo "' in lines:
        # What came before the error counts, and so the verdict does.
        gate.told("wirewatch-slurm.conf cannot be read to its end")
    else:
        assert status == 0
        assert gate.drained() == {}
        gate.told("the job starts")


def test_a_syslog_that_hangs_is_not_waited_for(gate: Gate) -> None:
    gate.configure(f"LOGGER={gate.folder}/hangs; NEW_CLUSTER=none; DEADLINE=soon; LOG_DEADLINE=1")
    (gate.folder / "hangs").write_text(f"#!/bin/sh\nexec sleep {HANGS}\n", "utf-8")
    (gate.folder / "hangs").chmod(0o755)
    gate.health("none", "g1")
    assert gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID="7").wait(PATIENCE) == 0
    gate.turn("prolog", "7")


def test_without_its_library_a_script_does_nothing(gate: Gate) -> None:
    alone = gate.folder / "alone"
    alone.mkdir()
    for script in ("prolog.sh", "epilog.sh", "healthcheck.sh"):
        (alone / script).write_bytes((SCRIPTS / script).read_bytes())
        (alone / script).chmod(0o755)
        assert subprocess.run([alone / script], env={}, check=False, capture_output=True).returncode == 0


def test_an_unknown_node_starts_its_jobs_unless_it_is_told_not_to(gate: Gate) -> None:
    gate.health("none", "g1", "g2")
    job = gate.submit("g1")
    assert gate.turn("prolog", job).status == 0
    gate.cluster.wait(lambda: gate.ran(job))
    gate.told(f"prolog of job {job} on g1: the job starts: UNKNOWN")
    gate.configure("FAIL_ON=failed,unknown")
    strict = gate.submit("g2")
    assert gate.turn("prolog", strict).status == 1
    assert gate.drained()["g2"].startswith("wirewatch: UNKNOWN")
    assert not gate.ran(strict)


def test_the_health_check_drains_an_idle_node(gate: Gate) -> None:
    gate.health("failed", "g1")
    gate.watch("g1")
    gate.cluster.wait(lambda: gate.drained().get("g1", "").startswith(REASON))
    gate.told("health check on g1: drained: FAILED")
    gate.health("none", "g1")
    seen = len(gate.turns("healthcheck"))
    gate.cluster.wait(lambda: len(gate.turns("healthcheck")) > seen + 1)
    assert "g1" in gate.drained(), "UNKNOWN is no way back"


def test_a_fit_node_asks_the_controller_once(gate: Gate) -> None:
    gate.configure(f"PATH={gate.folder}/told:$PATH")
    (gate.folder / "told").mkdir()
    for name in ("sinfo", "scontrol"):
        file = gate.folder / "told" / name
        file.write_text(f'#!/bin/sh\necho {name} >> {gate.folder}/calls\nexec {tool(name)} "$@"\n', "utf-8")
        file.chmod(0o755)
    for _ in range(4):
        assert gate.by_hand("healthcheck.sh", "g1").wait(PATIENCE) == 0
        assert gate.by_hand("prolog.sh", "g1").wait(PATIENCE) == 0
    assert (gate.folder / "calls").read_text("utf-8").split() == ["sinfo"]


def test_a_draining_node_is_resumed_under_its_running_job(gate: Gate) -> None:
    over = gate.folder / "ran-enough"
    job = gate.submit("g1", command=f"until [ -e {over} ]; do sleep 0.1; done")
    gate.cluster.wait(lambda: gate.ran(job))
    gate.health("failed", "g1")
    gate.watch("g1")
    gate.cluster.wait(lambda: gate.cluster.states()["g1"] == "draining")
    gate.health("ok", "g1")
    gate.cluster.wait(lambda: gate.cluster.states()["g1"] in {"mixed", "allocated"})
    over.touch()
    gate.cluster.wait(lambda: job_state(gate, job) == "COMPLETED")
    assert "g1" not in gate.drained()


def test_a_node_that_a_person_drained_is_left_to_the_person(gate: Gate) -> None:
    gate.health("failed", "g1")
    assert gate.by_hand("healthcheck.sh", "g1").wait(PATIENCE) == 0
    edited = gate.drained()["g1"].replace("wirewatch: ", "wirewatch: RMA 4711, do not touch; ")
    theirs = dict(
        zip(NODES, (edited, "fan 3 replaced", "wirewatch is wrong", "wirewatch: by hand"), strict=False)
    )
    for node, reason in theirs.items():
        gate.cluster.tell("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")
    for health in ("ok", "failed", "ok"):
        gate.health(health)
        scripts = [gate.by_hand("healthcheck.sh", node) for node in theirs]
        scripts += [gate.by_hand("epilog.sh", n, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1") for n in theirs]
        assert {script.wait(PATIENCE) for script in scripts} == {0}
        assert gate.drained() == theirs
    assert "resumed" not in gate.syslog()


def test_a_node_that_was_rebooted_comes_back_when_it_is_fit(gate: Gate) -> None:
    gate.health("failed", "g1")
    assert gate.by_hand("healthcheck.sh", "g1").wait(PATIENCE) == 0
    slurmd = gate.cluster.process("slurmd-g1")
    slurmd.terminate()
    slurmd.wait(PATIENCE)
    reboot(gate, "g1")
    gate.health("ok", "g1")
    gate.watch("g1")
    gate.cluster.serve("g1", "-b")
    gate.cluster.wait(lambda: gate.cluster.states()["g1"] == "idle")
    gate.told("resumed")


def reboot(gate: Gate, node: str) -> None:
    """Leave nothing in the folder that is in memory."""
    for file in (gate.folder / f"run-{node}").iterdir():
        file.unlink()


def test_the_check_before_slurmd_registers_resumes_no_node(gate: Gate) -> None:
    gate.health("failed", "g1")
    assert gate.by_hand("healthcheck.sh", "g1").wait(PATIENCE) == 0
    reboot(gate, "g1")
    gate.health("ok", "g1")
    assert gate.by_hand("healthcheck.sh", "g1").wait(PATIENCE) == 0
    assert list(gate.drained()) == ["g1"]
    assert gate.by_hand("healthcheck.sh", "g1").wait(PATIENCE) == 0
    assert gate.drained() == {}


@pytest.mark.parametrize("times", range(3))
def test_the_brake_holds_when_all_nodes_fail_at_once(gate: Gate, times: int) -> None:
    gate.configure("NEW_CLUSTER=3; STOCK=3")
    gate.health("failed")
    script = ("healthcheck.sh", "prolog.sh", "epilog.sh")[times]
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1"} if times else {}
    checks = [gate.by_hand(script, node, **job) for node in NODES]
    statuses = [check.wait(PATIENCE) for check in checks]
    kept = gate.drained()
    assert len(kept) == 3
    assert all(reason.startswith(REASON) for reason in kept.values())
    if script == "prolog.sh":
        assert [node for node, status in zip(NODES, statuses, strict=True) if status] == sorted(kept)
    gate.told("brake: ", len(NODES) - 3)
    again = [gate.by_hand("healthcheck.sh", node) for node in NODES]
    assert [check.wait(PATIENCE) for check in again] == [0] * len(NODES)
    assert gate.drained() == kept


def test_beyond_the_brake_jobs_start(gate: Gate) -> None:
    gate.configure("NEW_CLUSTER=2; STOCK=2")
    gate.health("failed")
    jobs = [gate.submit(node) for node in NODES]
    gate.cluster.wait(lambda: sum(gate.ran(job) for job in jobs) == len(NODES) - 2)
    gate.cluster.wait(
        lambda: sorted(job_state(gate, job) for job in jobs) == ["COMPLETED"] * 6 + ["PENDING"] * 2
    )
    kept = gate.drained()
    assert len(kept) == 2
    assert {node for node, job in zip(NODES, jobs, strict=True) if not gate.ran(job)} == set(kept)


def test_with_a_brake_of_0_nothing_is_ever_drained(gate: Gate) -> None:
    gate.configure("NEW_CLUSTER=0")
    gate.health("failed", "g1")
    orders = (gate.folder / "slurmctld.log").read_text("utf-8").count("state set to ")
    assert gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID="7").wait(PATIENCE) == 0
    assert gate.drained() == {}
    gate.told("brake: ")
    assert (gate.folder / "slurmctld.log").read_text("utf-8").count("state set to ") == orders


def test_who_could_not_look_again_after_its_drain_does_so_later(gate: Gate) -> None:
    """As after a controller that went away between a drain and the look at all drains."""
    gate.configure("NEW_CLUSTER=4; STOCK=4")
    gate.health("failed")
    for node in NODES[:4]:
        assert gate.by_hand("healthcheck.sh", node).wait(PATIENCE) == 0
        (gate.folder / f"run-{node}" / "unsure").touch()
    gate.configure("NEW_CLUSTER=3; STOCK=3")
    assert sorted(gate.drained()) == list(NODES[:4])
    checks = [gate.by_hand("healthcheck.sh", node) for node in NODES[:4]]
    assert [check.wait(PATIENCE) for check in checks] == [0] * 4
    assert sorted(gate.drained()) == list(NODES[:3])


@pytest.mark.parametrize("controller", ["hangs", "is gone"])
def test_without_a_controller_nothing_is_drained_and_jobs_start(gate: Gate, controller: str) -> None:
    gate.health("failed", "g1")
    gate.configure("SLURM_DEADLINE=2")
    if controller == "hangs":
        gate.cluster.process("slurmctld").send_signal(signal.SIGSTOP)
    else:
        conf = re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=1", gate.cluster.conf.read_text("utf-8"))
        (gate.folder / "gone.conf").write_text(conf, "utf-8")
        gate.configure(f"SLURM_DEADLINE=2; SLURM_CONF={gate.folder}/gone.conf")
    scripts = [gate.by_hand(name, "g1", SLURM_JOB_ID="7") for name in ("prolog.sh", "healthcheck.sh")]
    statuses = [script.wait(PATIENCE) for script in scripts]
    gate.cluster.process("slurmctld").send_signal(signal.SIGCONT)
    assert statuses == [0, 0]
    if controller == "hangs":
        # 124 or 137: it was not let end by itself.
        assert re.search(r"topology: exit status (124|137): ", gate.syslog()), gate.syslog()
    gate.told("not drained, Slurm could not be asked: FAILED")
    gate.told("the job starts on an unfit node")
    gate.cluster.wait(lambda: set(gate.cluster.states().values()) == {"idle"})


def test_the_epilog_drains_for_our_reason(gate: Gate) -> None:
    job = gate.submit("g1", command="sleep 1")
    gate.cluster.wait(lambda: gate.ran(job))
    gate.health("failed", "g1")
    epilog = gate.turn("epilog", job)
    assert epilog.status == 0
    assert gate.drained().get("g1", "").startswith(REASON), (epilog, gate.asked("g1"), gate.syslog())
    gate.cluster.wait(lambda: job_state(gate, job) == "COMPLETED")


def test_after_a_job_without_gpus_no_daemon_is_asked(gate: Gate) -> None:
    job = gate.cluster.submit(node="g1", command="true")
    assert gate.turn("epilog", job).status == 0
    assert gate.asked("g1") == []
    gate.configure(f"EPILOG_FOR=all; {OLD_PROBE}")
    job = gate.cluster.submit(node="g1", command="true")
    assert gate.turn("epilog", job).status == 0
    assert f"--owner slurm:{job}" in gate.asked("g1")[-1]


def test_a_hung_check_holds_the_epilog_until_its_deadline(gate: Gate) -> None:
    gate.configure(f"EPILOG_DEADLINE=2; {OLD_PROBE}")
    epilogs = {}
    for node, (how, script) in zip(NODES, MISBEHAVING.items(), strict=False):
        gate.misbehave(node, script)
        epilogs[how] = gate.by_hand("epilog.sh", node, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1")
    assert {how: epilog.wait(PATIENCE) for how, epilog in epilogs.items()} == dict.fromkeys(MISBEHAVING, 0)
    turns = gate.turns("epilog", "7")
    assert len(turns) == len(MISBEHAVING)
    assert all(2 - SLACK < turn.seconds < PATIENCE for turn in turns), turns
    gate.told("wirewatch gave no verdict: no answer within 2 s", len(MISBEHAVING))


def test_each_shell_reads_the_verdict_alike(tmp_path: Path) -> None:
    """The shells that nodes have; tests/node/cli/test_gate_without_python.py has all cases."""
    failed = written(tmp_path / "verdict", replies.health(1e9, "failed", replies.finding()))
    said = {shell: gatefile.gate(failed, shell=shell) for shell in gatefile.SHELLS}
    assert len(said) == 4
    assert {(one.code, one.line.partition(":")[0]) for one in said.values()} == {
        (2, "FAILED nvlink.link_down GPU 3 link 5")
    }


def test_the_scripts_are_sound_bash() -> None:
    scripts = sorted([*SCRIPTS.glob("*.sh"), *SCRIPTS.glob("*.conf")])
    assert len(scripts) == 7
    subprocess.run(["bash", "-n", *scripts], check=True)
    command = [
        tool("shellcheck"),
        "--external-sources",
        f"--source-path={SCRIPTS.parents[1]}",
        *map(str, scripts),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""
