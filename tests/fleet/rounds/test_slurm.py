"""The Slurm engine beside programs that print what Slurm's do: nodes, jobs that wait, run, answer and end."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fleet.rounds.playedengine import WORK, answers
from tests.rows import each
from tests.waiting import until
from wirewatch_fleet.rounds.engine import (
    NodesError,
    PairProgress,
    PairState,
    RoundEngineError,
    RoundOrder,
)
from wirewatch_fleet.rounds.plan import decode_pair_plan
from wirewatch_fleet.rounds.slurm import SlurmOptions, SlurmRounds, gpus_of, reason

NODES = """\
n1|idle|gpu:h200:8(S:0-1),nic:2|10.0.0.1
n2|idle|gpu:h200:8|10.0.0.2
n10|allocated|gpu:8|10.0.0.10
n3|reserved|gpu:h200:8|10.0.0.3
n4|idle*|gpu:h200:8|n4
n5|idle~|(null)|n5
n6|drained|gpu:h200:8|n6
n6|drained|gpu:h200:8|n6
"""
TOPOLOGY = "SwitchName=a Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=s Level=1 Switches=a Nodes=n[1-2]\n"
ORDER = RoundOrder(3, (("n1", "n2"), ("n3", "n4")), WORK, seconds=70.0, patience=9.5)


def engine(folder: Path, options: SlurmOptions = SlurmOptions(), **programs: str) -> SlurmRounds:  # noqa: B008
    """Programs are scripts; each leaves its arguments in a file of its name."""
    told = {
        "sinfo": f"cat <<'E'\n{NODES}E",
        "scontrol": f"cat <<'E'\n{TOPOLOGY}E",
        "squeue": "",
        "scancel": "",
    }
    for name, script in {**told, **programs}.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {folder}/{name}.asked\n{script}\n', "utf-8")
        path.chmod(0o755)
    search = f"{folder}:/usr/bin:/bin"
    return SlurmRounds(options, {"PATH": search, "HERE": str(folder)}, search)


def asked(folder: Path, name: str) -> list[str]:
    return (folder / f"{name}.asked").read_text("utf-8").splitlines()


def ended(made: SlurmRounds) -> Sequence[PairProgress]:
    final = {PairState.DONE, PairState.FAILED}
    until("the pairs do not end", lambda: all(one.state in final for one in made.poll()), every=0.02)
    told = made.poll()
    made.cancel()
    return told


def test_nodes_with_leaf_gpus_and_why_one_is_not_idle(tmp_path: Path) -> None:
    found = {one.name: one for one in engine(tmp_path).members()}
    assert list(found) == ["n1", "n2", "n3", "n4", "n5", "n6", "n10"]
    assert {name: one.busy for name, one in found.items()} == {
        "n1": "", "n2": "", "n3": "reserved", "n4": "not responding", "n5": "powered down", "n6": "drained",
        "n10": "allocated",
    }  # fmt: skip
    assert [one.leaf for one in found.values()][:3] == ["a", "a", ""]
    assert (found["n1"].gpus, found["n5"].gpus, found["n10"].address) == (8, None, "10.0.0.10")


STATES = {
    "idle": "", "idle+": "idle", "": "in no state", "allocated": "allocated", "mixed": "mixed",
    "reserved": "reserved", "maint": "maint", "down": "down", "drained": "drained", "idle*": "not responding",
    "idle~": "powered down", "idle#": "powering up", "idle%": "powering down", "idle-": "planned",
    "down*": "not responding", "unknown": "unknown",
}  # fmt: skip


OF_OTHERS = ("", "allocated", "mixed", "reserved", "maint", "drained")


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        (SlurmOptions(), {}),
        (SlurmOptions(reservation="r"), {"reserved": "", "maint": ""}),
        (
            SlurmOptions(job="7"),
            dict.fromkeys(["", "allocated", "mixed", "reserved", "maint", "drained"], ""),
        ),
    ],
    ids=["a partition", "a reservation", "an allocation"],
)
def test_what_a_node_is_busy_with_by_its_state(
    tmp_path: Path, options: SlurmOptions, differs: dict[str, str]
) -> None:
    """In an allocation only a node that runs nothing is busy; a flag says so whatever the state is."""
    rows = "".join(f"n{place}|{state}|gpu:8|a{place}\n" for place, state in enumerate(STATES))
    script = f"case $* in *reservation*) echo 'Nodes=n[0-{len(STATES) - 1}]';; *) exit 1;; esac"
    made = engine(tmp_path, options, sinfo=f"cat <<'E'\n{rows}E", scontrol=script)
    made.environment = {**made.environment, "SLURM_JOB_NODELIST": f"n[0-{len(STATES) - 1}]"}
    busy = {state: one.busy for state, one in zip(STATES, made.members(), strict=True)}
    assert busy == {**STATES, "idle+": "", **differs}


@pytest.mark.parametrize(
    "scontrol", [f"cat <<'E'\n{TOPOLOGY}E\nexit 1", "echo 'SwitchName=a Level=0 Nodes=n[1-'", "none"]
)
def test_without_a_topology_no_leaf_is_known(tmp_path: Path, scontrol: str) -> None:
    made = engine(tmp_path, sinfo="printf 'n1|idle||\\n'", scontrol=scontrol)
    if scontrol == "none":
        (tmp_path / "scontrol").unlink()
        made.search = str(tmp_path)
    assert {one.leaf for one in made.members()} == {""}


def test_what_is_asked_of_slurm(tmp_path: Path) -> None:
    """By its configuration, if one is given; of one partition, and of nodes that were named."""
    script = 'echo "${SLURM_CONF-none}" >> $0.conf; printf "n1|idle||\n"'
    made = engine(tmp_path, SlurmOptions(partition="p", nodes=("n1", "n1")), sinfo=script)
    (one,) = made.members()
    assert (one.address, one.gpus) == ("n1", None)
    made.environment = {**made.environment, "SLURM_CONF": "/etc/s.conf"}
    made.members()
    assert (tmp_path / "sinfo.conf").read_text("utf-8").split() == ["none", "/etc/s.conf"]
    assert asked(tmp_path, "sinfo")[0].endswith("--format=%N|%T|%G|%o --nodes=n1 --partition=p")
    engine(tmp_path, sinfo=script).members()
    assert asked(tmp_path, "sinfo")[-1].endswith("--format=%N|%T|%G|%o")


def test_a_reservation_without_nodes_is_asked_about_as_a_whole(tmp_path: Path) -> None:
    made = engine(tmp_path, SlurmOptions(reservation="r"), scontrol="echo 'ReservationName=r'")
    assert len(made.members()) == 7


def test_without_slurm_it_is_said(tmp_path: Path) -> None:
    made = engine(tmp_path)
    (tmp_path / "sinfo").unlink()
    made.search = str(tmp_path)
    with pytest.raises(RoundEngineError, match=r"^Slurm: .*sinfo"):
        made.members()


def test_those_of_a_reservation_are_idle_in_it(tmp_path: Path) -> None:
    script = "case $* in *reservation*) echo 'ReservationName=r Nodes=n[1,3] NodeCnt=2';; esac"
    made = engine(tmp_path, SlurmOptions(reservation="r"), scontrol=script)
    assert {one.name: one.busy for one in made.members()}["n3"] == ""
    assert asked(tmp_path, "sinfo")[-1].endswith("--nodes=n1,n3")


def test_inside_an_allocation_its_own_job_is_not_in_the_way(tmp_path: Path) -> None:
    made = engine(tmp_path, SlurmOptions(job="77"))
    made.environment = {**made.environment, "SLURM_JOB_NODELIST": "n[1,10]"}
    assert {one.name: one.busy for one in made.members()}["n10"] == ""


def test_a_node_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NodesError, match="Slurm has no node n7 there"):
        engine(tmp_path, SlurmOptions(nodes=("n[1,7]",))).members()


def test_a_node_that_is_removed_between_rounds_is_left_out(tmp_path: Path) -> None:
    made = engine(tmp_path, SlurmOptions(nodes=("n[1-2]", "n4")), sinfo="cat $0.nodes")
    nodes = tmp_path / "sinfo.nodes"
    nodes.write_text("n1|idle||h1\nn2|idle||h2\nn4|idle||h4\n", "utf-8")
    assert len(made.members()) == 3
    nodes.write_text("n1|idle||h1\nn4|idle||h4\n", "utf-8")
    assert [one.name for one in made.members()] == ["n1", "n4"]


@pytest.mark.parametrize("text", ["", "n[1-", "n[8-1]", ",", "n1,,n2", "-n1", "n1 n2", "n[1-99999999]"])
def test_a_list_of_nodes_that_cannot_be_read_is_the_users_fault(tmp_path: Path, text: str) -> None:
    with pytest.raises(NodesError, match=r"^--nodelist: "):
        engine(tmp_path, SlurmOptions(nodes=(text,))).members()


@pytest.mark.parametrize(
    ("script", "said"),
    [("echo 'sinfo: error: no controller' >&2; exit 1", "sinfo: sinfo: error: no controller"),
     ("echo '|idle|x|y'", "not a node of sinfo"), ("exit 1", "it ended with status 1")],
)  # fmt: skip
def test_a_controller_that_gives_no_nodes_is_an_error(tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(RoundEngineError, match=said):
        engine(tmp_path, sinfo=script).members()


def test_no_srun_is_an_error(tmp_path: Path) -> None:
    made = engine(tmp_path)
    made.search = str(tmp_path)
    with pytest.raises(RoundEngineError, match="srun is not installed"):
        made.start(ORDER)


def test_each_pair_gets_its_plan_and_its_answers_come_back(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text(answers("n1", "n2"), "utf-8")
    script = 'echo "$WIREWATCH_PAIR_PLAN" >> $HERE/plans; case $* in *n1,n2*) cat $HERE/answers;; esac'
    options = SlurmOptions(partition="probes", gres="gpu:8", command=("/opt/w/wirewatch",))
    made = engine(tmp_path, options, srun=script)
    made.members()
    made.start(ORDER)
    first, second = ended(made)
    assert (first.state, second.state) == (PairState.DONE, PairState.FAILED)
    assert "wirewatch.fleet-peer/1" in first.said
    assert second.said == "it ended with status 0"
    plans = [decode_pair_plan(line) for line in (tmp_path / "plans").read_text("utf-8").splitlines()]
    assert {(one.first, one.second, one.meet) for one in plans} == {
        ("n1", "n2", "10.0.0.1:28700"), ("n3", "n4", "10.0.0.3:28700")
    }  # fmt: skip
    (line,) = (one for one in asked(tmp_path, "srun") if "n1,n2" in one)
    words = (
        "--nodelist=n1,n2 ",
        "--exclusive",
        "--partition=probes",
        "--gres=gpu:8",
        "--time=2",
        "--mem=0",
        "--wait=8",
    )
    assert all(word in line for word in words)
    assert line.endswith("/opt/w/wirewatch fleet peer")


def test_pairs_of_nodes_with_one_address_meet_at_ports_of_their_own(tmp_path: Path) -> None:
    same = "n1|idle||fd00::1\nn2|idle||h\nn3|idle||fd00::1\nn4|idle||h\n"
    made = engine(tmp_path, sinfo=f"printf '{same}'", srun='echo "$WIREWATCH_PAIR_PLAN" >> $HERE/plans')
    made.members()
    made.start(ORDER)
    ended(made)
    plans = [decode_pair_plan(line) for line in (tmp_path / "plans").read_text("utf-8").splitlines()]
    assert {one.meet for one in plans} == {"[fd00::1]:28700", "[fd00::1]:28701"}


@pytest.mark.parametrize(
    ("job", "seconds", "squeue", "times"),
    [("", 0.0, "", 3), ("", 60.0, "", 0), ("7", 0.0, "", 0), ("", 0.0, "exit 1", 3), ("", 0.0, "rm", 0)],
    ids=["each time", "not so soon", "steps", "in vain", "no squeue"],
)
def test_the_controller_is_asked_now_and_then_about_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, seconds: float, squeue: str, times: int
) -> None:
    """Its output when it fails is no answer."""
    monkeypatch.setattr("wirewatch_fleet.rounds.slurm.ASK_SECONDS", seconds)
    script = f'echo "x|RUNNING|None"; {squeue}'
    made = engine(tmp_path, SlurmOptions(job=job), srun="exec sleep 60", squeue=script)
    if squeue == "rm":
        (tmp_path / "squeue").unlink()
        made.search = str(tmp_path)
    made.start(ORDER)
    for _ in range(3):
        told = made.poll()
    made.cancel()
    assert [one.said for one in told] == ["not yet in the queue" if times and not squeue else ""] * 2
    assert ((tmp_path / "squeue.asked").exists() and len(asked(tmp_path, "squeue"))) == times


def test_what_waits_says_why_and_what_runs_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirewatch_fleet.rounds.slurm.ASK_SECONDS", 1.0)
    made = engine(tmp_path, srun="exec sleep 60")
    made.start(ORDER)
    assert {one.state for one in made.poll()} == {PairState.WAITING}
    names = [next(w for w in line.split() if "job-name" in w)[11:] for line in _started(tmp_path)]
    rows = f"{names[0]}|PENDING|Priority\\n{names[1]}|RUNNING|None\\n"
    engine(tmp_path, squeue=f"printf '{rows}'", srun="exec sleep 60")
    wanted = {(PairState.WAITING, "Priority"), (PairState.RUNNING, "None")}
    until("not seen", lambda: {(one.state, one.said) for one in made.poll()} == wanted, every=0.02)
    made.cancel()


def _started(folder: Path) -> list[str]:
    until("not started", lambda: len(asked(folder, "srun")) == len(ORDER.pairs), every=0.02)
    return asked(folder, "srun")


def test_cancel_ends_what_runs_also_what_ignores_it_and_twice(tmp_path: Path) -> None:
    made = engine(tmp_path, srun="trap '' TERM; echo $$ >> $HERE/pids; while :; do sleep 0.05; done")
    made.cancel()
    made.start(ORDER)
    until("not started", lambda: len((tmp_path / "pids").read_text("utf-8").split()) == 2, every=0.02)
    made.cancel()
    pids = [int(pid) for pid in (tmp_path / "pids").read_text("utf-8").split()]
    until("still there", lambda: not any(Path(f"/proc/{pid}/fd/1").exists() for pid in pids), every=0.02)
    names = {next(w for w in line.split() if "job-name" in w)[11:] for line in asked(tmp_path, "srun")}
    assert set(asked(tmp_path, "scancel")[0].removeprefix("--name=").split(",")) == names
    made.cancel()
    assert len(asked(tmp_path, "scancel")) == 1


def test_steps_of_an_allocation_run_at_once_and_no_job_is_cancelled(tmp_path: Path) -> None:
    made = engine(tmp_path, SlurmOptions(job="77"), srun="exec sleep 60")
    made.start(ORDER)
    assert {one.state for one in made.poll()} == {PairState.RUNNING}
    assert not any("--exclusive" in line or "--immediate" in line for line in _started(tmp_path))
    made.cancel()
    assert not (tmp_path / "scancel.asked").exists()


def test_the_dry_run_shows_the_command(tmp_path: Path) -> None:
    told = engine(tmp_path).describe(ORDER)
    assert "a job of its own on two whole nodes" in told[0]
    assert "srun --nodes=2" in told[1]
    assert " --immediate=20 " in told[1]
    assert "--nodelist=A,B" in engine(tmp_path).describe(RoundOrder(1, (), WORK, 70.0, 9.5))[1]
    assert "a step of job 7," in engine(tmp_path, SlurmOptions(job="7")).describe(ORDER)[0]


@each(
    ("gres", "count"),
    [
        ("gpu:8", 8),
        ("gpu:h200:8(S:0-1),nic:2", 8),
        ("nic:2,gpu:a:4(S:0),gpu:b:2", 6),
        ("(null)", None),
        ("", None),
    ],
)
def test_gpus_of_a_node(gres: str, count: int | None) -> None:
    assert gpus_of(gres) == count


def test_the_first_error_is_the_reason() -> None:
    errors = (
        "srun: job 7 queued\nslurmstepd: error: *** STEP 7.0 CANCELLED DUE TO PREEMPTION ***\nsrun: error: n1"
    )
    assert reason(errors, 1) == "slurmstepd: error: *** STEP 7.0 CANCELLED DUE TO PREEMPTION ***"
    assert reason("", -9) == "it was ended by signal 9"
    assert reason("wirewatch: no lock is respected\n", 1) == (
        "it ended with status 1: wirewatch: no lock is respected"
    )


def test_the_environment_is_this_process() -> None:
    assert SlurmRounds(SlurmOptions()).environment == dict(os.environ)
