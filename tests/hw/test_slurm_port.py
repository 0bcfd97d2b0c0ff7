"""The slurm port against little programs named scontrol and squeue, which note what they are asked."""

import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.core.test_slurm import NODE, group, job
from wirewatch.core.ports import SlurmJob
from wirewatch.core.types import Absent, Why
from wirewatch.hw.slurm import SEARCH, UNSEEN, SystemSlurm

SHOW = "scontrol --all --local --details --oneliner show"
QUEUE = "squeue --noheader --all --local --states=all --format=%A %T --nodelist=gpu-a"
ALIASES = "scontrol show aliases"


def node(state: str = "MIXED", used: str = "gpu:h200:3(IDX:0,2-3)", gres: str = "gpu:h200:4") -> str:
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


def test_jobs_are_told_with_their_state_and_gpus(programs: Programs) -> None:
    programs.node(node())
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
    programs.node(node("IDLE", "gpu:h200:0(IDX:N/A)"))
    assert programs.slurm("gpu-a").jobs() == ()
    assert programs.asked() == [f"{SHOW} node gpu-a"]


def test_jobs_are_not_asked_one_by_one_where_no_gpu_is_used(programs: Programs) -> None:
    programs.node(node("MIXED", "gpu:h200:0(IDX:N/A)"))
    programs.queue("7 RUNNING", "8 RUNNING")
    assert programs.slurm("gpu-a").jobs() == (SlurmJob("7", "RUNNING", ()), SlurmJob("8", "RUNNING", ()))
    assert programs.asked() == [f"{SHOW} node gpu-a", QUEUE]


def test_on_a_node_without_gres_it_cannot_be_told_what_a_job_holds(programs: Programs) -> None:
    programs.node(node("MIXED", "gpu:0", "(null)"))
    programs.queue("7 RUNNING", "8 COMPLETED")
    assert programs.slurm("gpu-a").jobs() == (SlurmJob("7", "RUNNING", None),)


def test_a_job_that_ended_meanwhile_holds_nothing(programs: Programs) -> None:
    programs.node(node("MIXED", "gpu:h200:1(IDX:0)"))
    programs.queue("7 RUNNING", "8 RUNNING")
    programs.job("7", job(group("gpu-a", "gpu:h200:1(IDX:0)"), "7"))
    programs.job("8", "", 1, "slurm_load_jobs error: Invalid job id specified\n")
    assert programs.slurm("gpu-a").jobs() == (SlurmJob("7", "RUNNING", (0,)),)


def test_gpus_of_jobs_that_we_are_not_shown_are_held(programs: Programs) -> None:
    """PrivateData=jobs: squeue prints nothing and succeeds."""
    programs.node(node("MIXED", "gpu:h200:3(IDX:0,2-3)"))
    programs.queue()
    assert programs.slurm("gpu-a").jobs() == (SlurmJob("unknown", UNSEEN, (0, 2, 3)),)


def test_the_node_goes_by_the_host_s_name_where_slurm_conf_has_no_other(programs: Programs) -> None:
    short = os.uname().nodename.partition(".")[0]
    programs.says(ALIASES, "\n")
    programs.says(f"{SHOW} node {short}", node("IDLE", "gpu:h200:0(IDX:N/A)"))
    assert programs.slurm().jobs() == ()


def test_of_several_nodes_on_one_machine_one_must_be_named(programs: Programs) -> None:
    programs.says(ALIASES, "gpu-a gpu-b\n")
    told = absent(programs.slurm())
    assert told.why is Why.UNSUPPORTED
    assert "gpu-a, gpu-b" in told.detail
    programs.node(node("IDLE", "gpu:h200:0(IDX:N/A)"))
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
    programs.node(node())
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
    programs.node(node())
    programs.queue("7 RUNNING")
    programs.job("7", job(group("gpu-a", "gpu:h200:3(IDX:0,2-3)"), "7"))
    programs.says(step, "", 1, err)
    told = absent(programs.slurm())
    assert told.why is why
    assert told.detail == err.strip()


@pytest.mark.parametrize("step", [f"{SHOW} node gpu-a", QUEUE])
def test_an_answer_that_is_not_understood_is_malformed(programs: Programs, step: str) -> None:
    programs.node(node())
    programs.queue()
    programs.says(step, "what?\n")
    assert absent(programs.slurm()).why is Why.MALFORMED


@pytest.mark.parametrize("step", [ALIASES, f"{SHOW} node gpu-a", QUEUE, f"{SHOW} job 8"])
def test_the_deadline_is_that_of_the_whole_answer(programs: Programs, step: str) -> None:
    programs.node(node())
    programs.queue("7 RUNNING", "8 RUNNING")
    for number in ("7", "8"):
        programs.job(number, job(group("gpu-a", "gpu:h200:3(IDX:0,2-3)"), number))
    programs.does(step, "exec sleep 60\n")
    began = time.monotonic()
    told = absent(programs.slurm(deadline=1.0))
    assert told.why is Why.TIMEOUT
    assert 0.9 < time.monotonic() - began < 16


def test_many_slow_answers_are_given_up_together(programs: Programs) -> None:
    programs.node(node())
    programs.queue(*(f"{n} RUNNING" for n in range(1, 40)))
    for number in range(1, 40):
        slow = f"sleep 0.2; printf %s {shlex.quote(job(group('gpu-a', ''), str(number)))}; exit 0\n"
        programs.does(f"{SHOW} job {number}", slow)
    began = time.monotonic()
    assert absent(programs.slurm(deadline=1.0)).why is Why.TIMEOUT
    assert time.monotonic() - began < 16


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
