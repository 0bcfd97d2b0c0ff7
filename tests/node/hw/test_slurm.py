"""What Slurm prints, read: in the format of 22.05, and older groups as they are published."""

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import HANGS
from tests.rows import each
from wirewatch.core.ports import Output, SlurmJob
from wirewatch.core.types import Absent, Why
from wirewatch.hw.slurm import (
    SEARCH,
    UNSEEN,
    SlurmNode,
    SystemSlurm,
    gone,
    gpu_numbers,
    held_by,
    in_hostlist,
    parse_job,
    parse_node,
    parse_queue,
    refusal,
    unseen,
)

NODE = (
    "NodeName=gpu-a Arch=x86_64 CoresPerSocket=1  CPUAlloc={cpus} CPUEfctv=8 CPUTot=8 CPULoad=0.05"
    " AvailableFeatures=(null) ActiveFeatures=(null) Gres={gres} GresDrain=N/A GresUsed={used}"
    " NodeAddr=10.0.0.7 NodeHostName=h7 Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC  RealMemory=1"
    " AllocMem=0 FreeMem=23907 Sockets=8 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A"
    " Partitions=gpu  CfgTRES=cpu=8,mem=1M,billing=8 AllocTRES= Reason=State=IDLE Gres=none [root@2026]\n"
)
JOB = (
    "JobId={id} JobName={name} UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A Priority=4294901751 Nice=0"
    " Account=(null) QOS=(null) JobState={state} Reason=None Requeue=1 Partition=gpu AllocNode:Sid=login:7916"
    " ReqNodeList=gpu-a ExcNodeList=(null) NodeList=gpu-a BatchHost=gpu-a NumNodes=1 NumCPUs=1 NumTasks=1"
    " TRES=cpu=1,mem=1M,node=1,billing=1 Socks/Node=* CoreSpec=* JOB_GRES={gres} {groups} MinCPUsNode=1"
    " Command=(null) WorkDir=/home/ann StdErr=/dev/null Power= TresPerNode=gres:gpu:h200:1 \n"
)


def node(
    state: str = "IDLE", used: str = "gpu:h200:0(IDX:N/A)", gres: str = "gpu:h200:4(S:0-1)"
) -> SlurmNode:
    told = parse_node(NODE.format(cpus=0, gres=gres, used=used, state=state))
    assert isinstance(told, SlurmNode)
    return told


def job(groups: str, number: str = "9", name: str = "train", state: str = "RUNNING") -> str:
    return JOB.format(id=number, name=name, state=state, gres="gpu:h200:1", groups=groups)


def group(nodes: str, gres: str, word: str = "GRES") -> str:
    return f"Nodes={nodes} CPU_IDs=0-3,8 Mem=0 {word}={gres}"


@each(
    ("gres", "numbers"),
    [
        ("", ()),
        ("(null)", ()),
        ("gpu:8(IDX:0-7)", tuple(range(8))),
        ("gpu:h200:4(IDX:0,2-3)", (0, 2, 3)),
        ("gpu:h200:1(IDX:10)", (10,)),
        ("gpu(IDX:1-2)", (1, 2)),
        ("gpu:h200:0(IDX:N/A)", ()),
        ("gpu:0", ()),
        ("gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:5)", (0, 1, 5)),
        ("nic:2(IDX:0-1),gpu:h200:1(IDX:3)", (3,)),
        ("nic:2(IDX:0-1)", ()),
        ("gpu:h200:1(IDX:2),mps:50(IDX:3)", (2, 3)),
        ("gpu:h200:0(IDX:N/A),shard:h200:0(0/4,0/4)", ()),
    ],
)
def test_numbers_of_gpus_are_read(gres: str, numbers: tuple[int, ...]) -> None:
    assert gpu_numbers(gres) == numbers


@each(
    "gres",
    ["gpu:4", "gpu:h200:4(S:0-1)", "gpu:2(IDX:N/A)", "gpu(IDX:)", "gpu:2(IDX:0-)", "gpu:2(CNT:2)", "gpu",
     "gpu:2(IDX:3-2)", "shard:h200:2(1/4,1/4)", "gpu:h200:1(IDX:0),shard:2", "gpu:1(IDX:x)"],
)  # fmt: skip
def test_gpus_that_are_counted_and_not_numbered_are_not_known(gres: str) -> None:
    assert gpu_numbers(gres) is None


NUMBERS = st.sets(st.integers(0, 20), min_size=1, max_size=12)


def ranges(numbers: set[int]) -> str:
    """As Slurm writes a set of numbers: `0,2-3`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs)


@given(
    NUMBERS,
    st.sampled_from(["gpu:{n}", "gpu:h200:{n}", "gpu"]),
    st.sampled_from(["", "nic:1,", "ib:2(IDX:7),"]),
)
def test_every_set_of_numbers_is_read_as_it_was_written(numbers: set[int], form: str, before: str) -> None:
    gres = f"{before}{form.format(n=len(numbers))}(IDX:{ranges(numbers)})"
    assert gpu_numbers(gres) == tuple(sorted(numbers))


@given(st.text())
def test_any_text_is_numbers_or_not_known(text: str) -> None:
    told = gpu_numbers(text)
    assert told is None or list(told) == sorted(set(told))


@each(
    ("name", "hosts"),
    [
        ("gpu-a", "gpu-a"),
        ("gpu-a", "login,gpu-a,gpu-b"),
        ("gpu02", "gpu[01-03]"),
        ("gpu7", "gpu[1-3,7]"),
        ("gpu12", "gpu[8-12]"),
        ("gpu0", "gpu[0-1]"),
        ("gpu007", "login1,gpu[001-003,007]"),
        ("r1-n02", "r[1-2]-n[01-04]"),
        ("r1-n02-ib", "r[1-2]-n[01-04]-ib"),
        ("n12", "n[1-2][1-2]"),
    ],
)
def test_a_node_is_found_in_a_list_of_hosts(name: str, hosts: str) -> None:
    assert in_hostlist(name, hosts)


@each(
    ("name", "hosts"),
    [
        ("gpu-a", ""),
        ("gpu-a", "gpu-ab,xgpu-a"),
        ("gpu2", "gpu[01-03]"),
        ("gpu02", "gpu[1-3]"),
        ("gpu4", "gpu[1-3,7]"),
        ("gpu12", "gpu[1-2]"),
        ("gpu", "gpu[0-1]"),
        ("gpu1x", "gpu[0-1]"),
        ("r3-n02", "r[1-2]-n[01-04]"),
        ("gpu1", "gpu[a-b]"),
        ("abc1", "gpu[0-1]"),
        ("gpu012", "gpu[8-12]"),
        ("gpu1", "gpu["),
        ("gpu1", "gpu[]"),
    ],
)
def test_a_node_is_not_found_in_a_list_without_it(name: str, hosts: str) -> None:
    assert not in_hostlist(name, hosts)


@given(NUMBERS, st.integers(0, 25), st.integers(1, 3))
def test_a_list_of_hosts_names_those_of_its_numbers_and_width(
    numbers: set[int], asked: int, width: int
) -> None:
    inside = ",".join(str(n).zfill(width) for n in sorted(numbers))
    assert in_hostlist(f"gpu{str(asked).zfill(width)}", f"a,gpu[{inside}],z1") == (asked in numbers)


@given(st.text(alphabet="gpu[]-,019"), st.text(alphabet="gpu[]-,019"))
def test_any_list_of_hosts_is_read(name: str, hosts: str) -> None:
    assert isinstance(in_hostlist(name, hosts), bool)


def test_a_job_s_gpus_are_those_of_its_groups_on_this_node() -> None:
    text = job(f"{group('gpu-[b-c]', 'gpu:h200:4(IDX:0-3)')} {group('gpu-a', 'gpu:h200:2(IDX:1,3)')}")
    assert parse_job(text, "9", "gpu-a") == (1, 3)


def test_a_node_may_stand_in_several_groups_of_a_job_and_in_a_list() -> None:
    text = job(f"{group('gpu-a', 'gpu:2(IDX:0-1)')} {group('login,gpu-a', 'gpu:1(IDX:3)')}")
    assert parse_job(text, "9", "gpu-a") == (0, 1, 3)


def test_the_groups_of_slurm_before_version_20_are_read() -> None:
    assert parse_job(job(group("gpu-a", "gpu(IDX:0-1)", "GRES_IDX")), "9", "gpu-a") == (0, 1)
    assert parse_job(job(group("gpu-a", "", "GRES_IDX")), "9", "gpu-a") == ()


def test_a_job_without_gpus_holds_none() -> None:
    assert parse_job(job(group("gpu-a", "")), "9", "gpu-a") == ()


@each("text", ["", job(""), job(group("gpu-b", "gpu:1(IDX:0)")), job(group("gpu-a", "gpu:1")), "nonsense"])
def test_a_job_that_does_not_give_its_gpus_here_is_not_known(text: str) -> None:
    assert parse_job(text, "9", "gpu-a") is None


def test_of_an_array_only_the_task_that_was_asked_for_counts() -> None:
    """For the first task of an array Slurm prints all that run."""
    first, second = job(group("gpu-a", "gpu:h200:1(IDX:2)"), "10"), job(group("gpu-a", "gpu:h200:1(IDX:3)"))
    assert parse_job(f"{second}\n{first}\n", "9", "gpu-a") == (3,)
    assert parse_job(f"{second}\n{first}\n", "10", "gpu-a") == (2,)
    assert parse_job(f"{second}\n{first}\n", "1", "gpu-a") is None


FORGED = f"x JobState=COMPLETED {group('gpu-a', 'gpu:1(IDX:0)')}"


def test_a_job_s_name_may_add_gpus_and_never_takes_one_away() -> None:
    real = group("gpu-a", "gpu:h200:2(IDX:2-3)")
    assert parse_job(job(real, name=FORGED), "9", "gpu-a") == (0, 2, 3)
    assert parse_job(job(real, name=f"x {group('gpu-a', '')}"), "9", "gpu-a") == (2, 3)


def test_a_name_with_a_line_end_hides_a_job_s_gpus_and_nothing_more() -> None:
    real = group("gpu-a", "gpu:h200:2(IDX:2-3)")
    assert parse_job(job(real, name="x\nJobId=7 y"), "9", "gpu-a") is None
    hidden = parse_job(job(real, name=f"x {group('gpu-a', '')} \nJobId=7 y"), "9", "gpu-a")
    assert hidden == ()
    told = unseen(node("MIXED", "gpu:h200:2(IDX:2-3)"), [SlurmJob("9", "RUNNING", hidden)])
    assert told == SlurmJob("unknown", UNSEEN, (2, 3))


def test_a_node_gives_its_state_and_which_gpus_are_used() -> None:
    assert node() == SlurmNode(frozenset({"IDLE"}), counts=True, used=())
    mixed = node("MIXED+DRAIN", "gpu:h200:3(IDX:0,2-3)")
    assert mixed == SlurmNode(frozenset({"MIXED", "DRAIN"}), counts=True, used=(0, 2, 3))
    assert node("MIXED", "gpu:h200:3").used is None
    bare = parse_node("NodeName=gpu-a Gres=gpu:h200:4 State=MIXED")
    assert bare == SlurmNode(frozenset({"MIXED"}), counts=True, used=None)


def test_a_node_without_gres_counts_no_gpus() -> None:
    """It says `GresUsed=gpu:0` all the same."""
    assert node(gres="(null)", used="gpu:0") == SlurmNode(frozenset({"IDLE"}), counts=False, used=())
    assert node(gres="nic:2", used="nic:0").counts is False


@each("text", ["", "gpu-a", "Node gpu-a not found", "State=IDLE", "Gres=gpu:4"])
def test_what_is_no_node_is_malformed(text: str) -> None:
    told = parse_node(text)
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED


@each(
    ("state", "used", "gres", "idle"),
    [
        ("IDLE", "gpu:h200:0(IDX:N/A)", "gpu:h200:4", True),
        ("IDLE+DRAIN", "gpu:h200:0(IDX:N/A)", "gpu:h200:4", True),
        ("IDLE*", "gpu:h200:0(IDX:N/A)", "gpu:h200:4", True),
        ("IDLE+COMPLETING", "gpu:h200:0(IDX:N/A)", "gpu:h200:4", False),  # epilogs run
        ("IDLE", "gpu:h200:2(IDX:0-1)", "gpu:h200:4", False),  # a suspended job
        ("IDLE", "gpu:h200:2", "gpu:h200:4", False),
        ("MIXED", "gpu:h200:0(IDX:N/A)", "gpu:h200:4", False),
        ("ALLOCATED", "gpu:h200:4(IDX:0-3)", "gpu:h200:4", False),
        ("DOWN", "gpu:h200:0(IDX:N/A)", "gpu:h200:4", False),
        ("IDLE", "gpu:0", "(null)", False),
    ],
)
def test_a_node_is_idle_when_nothing_at_all_is_held(state: str, used: str, gres: str, *, idle: bool) -> None:
    assert node(state, used, gres).idle is idle


HELD = (
    "RUNNING",
    "COMPLETING",
    "CONFIGURING",
    "SUSPENDED",
    "STOPPED",
    "SIGNALING",
    "STAGE_OUT",
    "RESIZING",
    "NEW",
)
FREE = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PENDING", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED")


@given(st.lists(st.tuples(st.integers(1, 99999), st.sampled_from(HELD + FREE)), max_size=8))
def test_the_queue_gives_the_jobs_that_hold_the_node(jobs: list[tuple[int, str]]) -> None:
    text = "".join(f"{number} {state}\n" for number, state in jobs)
    assert parse_queue(text) == [(str(number), state) for number, state in jobs if state in HELD]


@each("line", ["9", "9_1 RUNNING", "RUNNING 9", "9 running", "slurm_load_jobs error: x"])
def test_a_queue_with_a_line_that_is_no_job_is_malformed(line: str) -> None:
    told = parse_queue(f"8 RUNNING\n{line}\n")
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED


R, CG = "RUNNING", "COMPLETING"


@each(
    ("seen", "jobs", "gpus"),
    [
        (node("MIXED", "gpu:2(IDX:0-1)"), [(R, (0, 1))], "nobody"),
        (node("MIXED", "gpu:2(IDX:0-1)"), [(R, (0,)), (R, (1, 2))], "nobody"),
        (node("MIXED", "gpu:3(IDX:0-2)"), [(R, (1,))], (0, 2)),
        (node("MIXED", "gpu:3(IDX:0-2)"), [], (0, 1, 2)),
        (node("MIXED", "gpu:3(IDX:0-2)"), [(R, None)], "nobody"),
        (node("MIXED"), [], "nobody"),  # a job without GPUs that is not shown
        (node("MIXED", "gpu:3"), [(R, ())], None),
        (node("IDLE+COMPLETING"), [], None),
        (node("IDLE+COMPLETING"), [(CG, None)], "nobody"),
        (node("MIXED+COMPLETING", "gpu:1(IDX:0)"), [(R, (0,))], None),
        (node("MIXED", "gpu:0", "(null)"), [], None),
        (node("MIXED", "gpu:0", "(null)"), [(R, None)], "nobody"),
        (node("IDLE", "gpu:0", "(null)"), [], "nobody"),
    ],
)
def test_gpus_that_are_used_by_no_job_that_is_shown_are_held_by_one_that_is_not(
    seen: SlurmNode, jobs: list[tuple[str, tuple[int, ...] | None]], gpus: tuple[int, ...] | str | None
) -> None:
    told = unseen(seen, [SlurmJob(str(n), state, held) for n, (state, held) in enumerate(jobs)])
    assert told == (None if gpus == "nobody" else SlurmJob("unknown", UNSEEN, gpus))  # type: ignore[arg-type]


@given(NUMBERS, st.lists(NUMBERS, max_size=4))
def test_every_gpu_that_is_used_is_held_by_a_job(used: set[int], jobs: list[set[int]]) -> None:
    shown = [SlurmJob(str(n), R, tuple(sorted(held))) for n, held in enumerate(jobs)]
    more = unseen(node("MIXED", f"gpu:{len(used)}(IDX:{ranges(used)})"), shown)
    holders = [*shown, more] if more else shown
    assert used <= {number for holder in holders for number in holder.gpus or ()}


@each(
    ("err", "why"),
    [
        ("slurm_load_node error: Unable to contact slurm controller (connect failure)", Why.LOST),
        ("slurm_load_node error: Socket timed out on send/recv operation", Why.TIMEOUT),
        ("Node nix not found", Why.MISSING),
        ("squeue: error: Invalid node name nix", Why.MISSING),
        ("slurm_load_node error: Access/permission denied", Why.DENIED),
        ("scontrol: error: x\nslurm_load_node error: Protocol authentication error", Why.DENIED),
        ("scontrol: fatal: Could not establish a configuration source", Why.LOST),
        ("", Why.LOST),
    ],
)
def test_a_refusal_says_why_in_slurm_s_own_words(err: str, why: Why) -> None:
    told = refusal(Output(1, "", f"{err}\n"))
    assert told.why is why
    assert told.detail == (err.splitlines()[-1] if err else "exit status 1")


def test_a_job_that_is_not_known_any_more_is_gone() -> None:
    assert gone(Output(1, "", "slurm_load_jobs error: Invalid job id specified\n"))
    assert not gone(Output(0, job(group("gpu-a", ""), name="Invalid job id specified")))
    assert not gone(Output(1, "", "slurm_load_jobs error: Unable to contact slurm controller\n"))


SHOW = "scontrol --all --local --details --oneliner show"
QUEUE = "squeue --noheader --all --local --states=all --format=%A %T --nodelist=gpu-a"
ALIASES = "scontrol show aliases"


def node_text(state: str = "MIXED", used: str = "gpu:h200:3(IDX:0,2-3)", gres: str = "gpu:h200:4") -> str:
    return NODE.format(cpus=1, gres=gres, used=used, state=state)


@dataclass
class Programs:
    """A folder with scontrol and squeue; what they say is set by their whole command line."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("scontrol", "squeue"):
            self.install(name)
        self.says(ALIASES, "gpu-a \n")

    def install(self, name: str) -> None:
        file = self.folder / name
        file.write_text(
            f'#!/bin/sh\ncd {self.folder}\nasked="{name} $*"\necho "$asked" >> asked\n'
            'key=$(printf %s "$asked" | tr " /" "__")\n'
            '[ -e "$key.run" ] && . "./$key.run"\n'
            'echo "$asked: nothing to say" >&2; exit 9\n',
            "utf-8",
        )
        file.chmod(0o755)

    def does(self, asked: str, script: str) -> None:
        (self.folder / f"{asked.translate({32: '_', 47: '_'})}.run").write_text(script, "utf-8")

    def says(self, asked: str, out: str, status: int = 0, err: str = "") -> None:
        """What is printed when asked so."""
        said = f"printf %s {shlex.quote(out)}; printf %s {shlex.quote(err)} >&2; exit {status}\n"
        self.does(asked, said)

    def node(self, text: str) -> None:
        self.says(f"{SHOW} node gpu-a", text)

    def queue(self, *jobs: str) -> None:
        self.says(QUEUE, "".join(f"{job}\n" for job in jobs))

    def job(self, number: str, text: str, status: int = 0, err: str = "") -> None:
        self.says(f"{SHOW} job {number}", text, status, err)

    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text("utf-8").splitlines()

    def slurm(self, node: str = "", conf: str = "", deadline: float = 20.0) -> SystemSlurm:
        return SystemSlurm(node, conf, f"{self.folder}:/usr/bin:/bin", deadline)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def absent(slurm: SystemSlurm) -> Absent:
    told = slurm.jobs()
    assert isinstance(told, Absent), told
    return told


def test_jobs_are_reported_with_their_state_and_gpus(programs: Programs) -> None:
    programs.node(node_text())
    programs.queue("7 RUNNING", "5 COMPLETED", "8 SUSPENDED", "9 RUNNING", "10 COMPLETING", "11 PENDING")
    programs.job("7", job(group("gpu-a", "gpu:h200:1(IDX:0)"), "7"))
    programs.job("8", job(f"{group('gpu-b', 'gpu:1(IDX:1)')} {group('gpu-a', 'gpu:h200:2(IDX:2-3)')}", "8"))
    programs.job("9", job(group("gpu-a", ""), "9"))
    assert programs.slurm().jobs() == (
        SlurmJob("7", "RUNNING", (0,)),
        SlurmJob("8", "SUSPENDED", (2, 3)),
        SlurmJob("9", "RUNNING", ()),
        SlurmJob("10", "COMPLETING", None),
    )
    assert programs.asked() == [
        ALIASES, f"{SHOW} node gpu-a", QUEUE, f"{SHOW} job 7", f"{SHOW} job 8", f"{SHOW} job 9",
    ]  # fmt: skip


def test_an_idle_node_is_one_small_question(programs: Programs) -> None:
    programs.node(node_text("IDLE", "gpu:h200:0(IDX:N/A)"))
    assert programs.slurm("gpu-a").jobs() == ()
    assert programs.asked() == [f"{SHOW} node gpu-a"]


def test_jobs_are_not_asked_one_by_one_where_no_gpu_is_used(programs: Programs) -> None:
    programs.node(node_text("MIXED", "gpu:h200:0(IDX:N/A)"))
    programs.queue("7 RUNNING", "8 RUNNING")
    assert programs.slurm("gpu-a").jobs() == (SlurmJob("7", "RUNNING", ()), SlurmJob("8", "RUNNING", ()))
    assert programs.asked() == [f"{SHOW} node gpu-a", QUEUE]


def test_on_a_node_without_gres_it_is_not_known_what_a_job_holds(programs: Programs) -> None:
    programs.node(node_text("MIXED", "gpu:0", "(null)"))
    programs.queue("7 RUNNING", "8 COMPLETED")
    assert programs.slurm("gpu-a").jobs() == (SlurmJob("7", "RUNNING", None),)


def test_a_job_that_ended_meanwhile_holds_nothing(programs: Programs) -> None:
    programs.node(node_text("MIXED", "gpu:h200:1(IDX:0)"))
    programs.queue("7 RUNNING", "8 RUNNING")
    programs.job("7", job(group("gpu-a", "gpu:h200:1(IDX:0)"), "7"))
    programs.job("8", "", 1, "slurm_load_jobs error: Invalid job id specified\n")
    assert programs.slurm("gpu-a").jobs() == (SlurmJob("7", "RUNNING", (0,)),)


def test_gpus_of_jobs_that_we_are_not_shown_are_held(programs: Programs) -> None:
    """PrivateData=jobs: squeue prints nothing and succeeds."""
    programs.node(node_text("MIXED", "gpu:h200:3(IDX:0,2-3)"))
    programs.queue()
    assert programs.slurm("gpu-a").jobs() == (SlurmJob("unknown", UNSEEN, (0, 2, 3)),)


def test_the_node_goes_by_the_host_s_name_where_slurm_conf_has_no_other(programs: Programs) -> None:
    short = os.uname().nodename.partition(".")[0]
    programs.says(ALIASES, "\n")
    programs.says(f"{SHOW} node {short}", node_text("IDLE", "gpu:h200:0(IDX:N/A)"))
    assert programs.slurm().jobs() == ()


def test_of_several_nodes_on_one_machine_one_must_be_named(programs: Programs) -> None:
    programs.says(ALIASES, "gpu-a gpu-b\n")
    told = absent(programs.slurm())
    assert told.why is Why.UNSUPPORTED
    assert "gpu-a, gpu-b" in told.detail
    programs.node(node_text("IDLE", "gpu:h200:0(IDX:N/A)"))
    assert programs.slurm("gpu-a").jobs() == ()


@pytest.mark.parametrize("name", ["-o", "a b", "gpu[1-2]", "a,b", "$(id)", "x\ny", "../x"])
def test_a_name_that_is_no_node_s_is_never_asked_for(programs: Programs, name: str) -> None:
    assert absent(programs.slurm(name)).why is Why.MALFORMED
    assert not (programs.folder / "asked").exists()


def test_where_slurm_is_not_installed_it_is_missing(tmp_path: Path) -> None:
    told = absent(SystemSlurm("gpu-a", search=str(tmp_path)))
    assert told.why is Why.MISSING
    assert "scontrol" in told.detail


def test_a_node_that_slurm_does_not_know_is_missing(programs: Programs) -> None:
    programs.says(f"{SHOW} node gpu-a", "", 1, "Node gpu-a not found\n")
    told = absent(programs.slurm())
    assert (told.why, told.detail) == (Why.MISSING, "Node gpu-a not found")


def test_once_the_node_is_slurm_s_nothing_is_missing_any_more(programs: Programs) -> None:
    programs.node(node_text())
    (programs.folder / "squeue").unlink()
    slurm = SystemSlurm("gpu-a", search=str(programs.folder))
    (programs.folder / "printf").symlink_to("/usr/bin/printf")
    (programs.folder / "tr").symlink_to("/usr/bin/tr")
    told = absent(slurm)
    assert told.why is Why.LOST
    assert "squeue is not installed" in told.detail


LOST = "slurm_load_node error: Unable to contact slurm controller (connect failure)\n"


@pytest.mark.parametrize("step", [ALIASES, f"{SHOW} node gpu-a", QUEUE, f"{SHOW} job 7"])
@pytest.mark.parametrize(
    ("err", "why"),
    [
        (LOST, Why.LOST),
        ("slurm_load_node error: Socket timed out on send/recv operation\n", Why.TIMEOUT),
        ("slurm_load_jobs error: Access/permission denied\n", Why.DENIED),
    ],
)
def test_a_controller_that_does_not_answer_is_never_a_node_without_jobs(
    programs: Programs, step: str, err: str, why: Why
) -> None:
    programs.node(node_text())
    programs.queue("7 RUNNING")
    programs.job("7", job(group("gpu-a", "gpu:h200:3(IDX:0,2-3)"), "7"))
    programs.says(step, "", 1, err)
    told = absent(programs.slurm())
    assert told.why is why
    assert told.detail == err.strip()


@pytest.mark.parametrize("step", [f"{SHOW} node gpu-a", QUEUE])
def test_an_answer_that_is_not_understood_is_malformed(programs: Programs, step: str) -> None:
    programs.node(node_text())
    programs.queue()
    programs.says(step, "what?\n")
    assert absent(programs.slurm()).why is Why.MALFORMED


@pytest.mark.parametrize("step", [ALIASES, f"{SHOW} node gpu-a", QUEUE, f"{SHOW} job 8"])
def test_the_deadline_is_that_of_the_whole_answer(programs: Programs, step: str) -> None:
    programs.node(node_text())
    programs.queue("7 RUNNING", "8 RUNNING")
    for number in ("7", "8"):
        programs.job(number, job(group("gpu-a", "gpu:h200:3(IDX:0,2-3)"), number))
    programs.does(step, "exec sleep 60\n")
    began = time.monotonic()
    told = absent(programs.slurm(deadline=1.0))
    assert told.why is Why.TIMEOUT
    assert 0.9 < time.monotonic() - began < HANGS


def test_many_slow_answers_are_given_up_together(programs: Programs) -> None:
    programs.node(node_text())
    programs.queue(*(f"{n} RUNNING" for n in range(1, 40)))
    for number in range(1, 40):
        slow = f"sleep 0.2; printf %s {shlex.quote(job(group('gpu-a', ''), str(number)))}; exit 0\n"
        programs.does(f"{SHOW} job {number}", slow)
    began = time.monotonic()
    assert absent(programs.slurm(deadline=1.0)).why is Why.TIMEOUT
    assert time.monotonic() - began < HANGS


def test_slurm_s_own_settings_are_passed_on_and_nothing_else(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/ours/slurm.conf")
    monkeypatch.setenv("SLURM_JWT", "hunter2")
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    programs.does(f"{SHOW} node gpu-a", "env > seen; exit 1\n")
    absent(programs.slurm())
    seen = (programs.folder / "seen").read_text("utf-8").splitlines()
    assert "SLURM_CONF=/etc/ours/slurm.conf" in seen
    assert not [line for line in seen if "hunter2" in line or line.startswith("SQUEUE")]
    absent(programs.slurm(conf="/opt/slurm.conf"))
    assert "SLURM_CONF=/opt/slurm.conf" in (programs.folder / "seen").read_text("utf-8").splitlines()
    monkeypatch.delenv("SLURM_CONF")
    absent(programs.slurm())
    assert "SLURM_CONF" not in (programs.folder / "seen").read_text("utf-8")


def test_programs_are_looked_for_in_whole_paths_also_where_slurm_is_installed_by_hand() -> None:
    assert {"/usr/bin", "/opt/slurm/bin"} <= set(SEARCH.split(":"))
    assert all(folder.startswith("/") for folder in SEARCH.split(":"))


GONE = Absent(Why.LOST, "no controller")
IDLE, MIXED = (
    NODE.format(cpus=0, gres="gpu:h200:4", used="gpu:h200:0(IDX:N/A)", state="IDLE"),
    NODE.format(cpus=8, gres="gpu:h200:4", used="gpu:h200:2(IDX:0-1)", state="MIXED"),
)
HELD_BY_9 = job(group("gpu-a", "gpu:h200:2(IDX:0-1)"))


class Said:
    """Programs that say what a test wants, by the last word that names the step, and count what is left."""

    def __init__(self, **steps: Output | Absent | str) -> None:
        self.steps, self.asked, self.left = steps, list[str](), list[float]()

    def run(self, command: Sequence[str], deadline: float) -> Output | Absent:
        step = "queue" if command[0] == "squeue" else command[-1 if command[-1] == "aliases" else -2]
        self.asked.append(step)
        self.left.append(deadline)
        found = self.steps[step]
        return Output(0, found, "") if isinstance(found, str) else found


def asked(said: Said, *, name: str = "", deadline: float = 60.0) -> Sequence[SlurmJob] | Absent:
    slurm = SystemSlurm(name, deadline=deadline)
    slurm._programs = said  # type: ignore[assignment]  # noqa: SLF001
    return slurm.jobs()


REFUSED = Output(1, "", "slurm_load_jobs error: Invalid job id specified")


@each(
    ("why", "steps", "name", "answer", "asks"),
    [
        ("idle", {"aliases": "gpu-a", "node": IDLE}, "", (), ["aliases", "node"]),
        ("the name is given", {"node": IDLE}, "gpu-a", (), ["node"]),
        ("no aliases", {"aliases": GONE}, "", GONE, ["aliases"]),
        ("several names", {"aliases": "gpu-a gpu-b"}, "",
         Absent(Why.UNSUPPORTED, "several Slurm nodes on this machine (gpu-a, gpu-b): name one"),
         ["aliases"]),
        ("no node", {"node": GONE}, "gpu-a", GONE, ["node"]),
        ("no queue", {"node": MIXED, "queue": GONE}, "gpu-a", GONE, ["node", "queue"]),
        ("nothing is missing once the node is known",
         {"node": MIXED, "queue": Absent(Why.MISSING, "squeue is not installed")}, "gpu-a",
         Absent(Why.LOST, "squeue is not installed"), ["node", "queue"]),
        ("a job", {"node": MIXED, "queue": "9 RUNNING", "job": HELD_BY_9}, "gpu-a",
         (SlurmJob("9", "RUNNING", (0, 1)),), ["node", "queue", "job"]),
        ("a job that cannot be asked for", {"node": MIXED, "queue": "9 RUNNING", "job": GONE}, "gpu-a", GONE,
         ["node", "queue", "job"]),
        ("a job that is refused",
         {"node": MIXED, "queue": "9 RUNNING", "job": Output(1, "", "slurm: permission denied")}, "gpu-a",
         Absent(Why.DENIED, "slurm: permission denied"), ["node", "queue", "job"]),
        ("a job that has ended", {"node": MIXED, "queue": "9 RUNNING", "job": REFUSED}, "gpu-a",
         (SlurmJob("unknown", UNSEEN, (0, 1)),), ["node", "queue", "job"]),
        ("a job that ends", {"node": MIXED, "queue": "9 COMPLETING"}, "gpu-a",
         (SlurmJob("9", "COMPLETING", None),), ["node", "queue"]),
        ("no GPU is used", {"node": IDLE.replace("State=IDLE ", "State=MIXED "), "queue": "9 RUNNING"},
         "gpu-a", (SlurmJob("9", "RUNNING", ()),), ["node", "queue"]),
        ("no GPU is counted", {"node": MIXED.replace("gpu:h200:4", "(null)"), "queue": "9 RUNNING"}, "gpu-a",
         (SlurmJob("9", "RUNNING", None),), ["node", "queue"]),
    ],
)  # fmt: skip
def test_what_slurm_is_asked_and_what_follows(
    why: str,
    steps: dict[str, Output | Absent | str],
    name: str,
    answer: Sequence[SlurmJob] | Absent,
    asks: list[str],
) -> None:
    said = Said(**steps)
    assert asked(said, name=name) == answer, why
    assert said.asked == asks
    assert all(0 < left <= 60.0 for left in said.left)


def test_nothing_is_asked_after_the_deadline() -> None:
    said = Said()
    found = asked(said, name="gpu-a", deadline=0.0)
    assert (found, said.asked) == (Absent(Why.TIMEOUT, "Slurm did not answer within 0 s"), [])


@each(
    ("text", "held"),
    [
        ("rack\nnot fit for jobs, but in use\n", "rack"), ("stock\n", "stock"), ("pool", "pool"),
        ("", "unknown"), ("Rack\n", "unknown"), ("\x00\xff", "unknown"), (None, ""),
    ],
)  # fmt: skip
def test_what_the_brake_of_the_scripts_holds_by(tmp_path: Path, text: str | None, held: str) -> None:
    file = tmp_path / "brake"
    if text is not None:
        file.write_text(text, "utf-8")
    assert held_by(str(file)) == held
    file.unlink(missing_ok=True)


def test_a_brake_that_cannot_be_read_holds_and_one_that_is_not_looked_for_does_not(tmp_path: Path) -> None:
    assert held_by(str(tmp_path)) == "unknown"
    assert held_by("") == ""
