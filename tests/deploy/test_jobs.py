"""deploy/jobs: what puts the tap into jobs, run as it is where it can be, with the same paths everywhere."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.disks import needs_root
from wirewatch.config import JobsSection
from wirewatch.jobs.tap.ringfile import RING_BYTES
from wirewatch.jobs.tap.rings import RINGS
from wirewatch.jobs.tap.tapfile import LIBRARY
from wirewatch.nccl.settings import parse_nccl_conf

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/jobs"
RINGS_FOLDER = JobsSection().rings
TAP = f"/opt/wirewatch/lib/{LIBRARY}"
SETTING = f"NCCL_PROFILER_PLUGIN={TAP}"


def text(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def settings(name: str) -> list[str]:
    """Lines that are no remark."""
    return [line for line in text(name).splitlines() if line.strip() and not line.startswith("#")]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's tap and folder of rings."""
    (tmp_path / "rings").mkdir()
    (tmp_path / LIBRARY).touch()
    return tmp_path


def test_the_folder_is_made_as_the_agent_wants_it_and_has_a_size_of_its_own() -> None:
    mount = dict(line.split("=", 1) for line in settings("wirewatch-jobs.mount") if "=" in line)
    options = dict(option.partition("=")[::2] for option in mount["Options"].split(","))
    assert (mount["Where"], mount["Type"], options["mode"]) == (RINGS_FOLDER, "tmpfs", "3773")
    assert (options["uid"], options["gid"]) == ("wirewatch", "wirewatch"), "it removes rings of others"
    assert {"nosuid", "nodev", "noexec"} <= set(options)
    assert int(options["size"].removesuffix("m")) << 20 >= RINGS * RING_BYTES, "as many as the agent reads"
    assert int(options["nr_inodes"].removesuffix("k")) << 10 >= RINGS
    assert f"ReadWritePaths=-{RINGS_FOLDER}" in (ROOT / "deploy/systemd/wirewatch.service").read_text("utf-8")


def test_all_name_the_same_library_and_folder() -> None:
    conf = parse_nccl_conf(text("nccl.conf"))
    assert (dict(conf.settings), conf.unknown) == ({"NCCL_PROFILER_PLUGIN": TAP}, ())
    for script in ("task-prolog.sh", "enroot-hook.sh"):
        assert re.search(rf"^library=\S*{re.escape(TAP)}\}}?$", text(script), re.MULTILINE)
        assert re.search(
            rf"^rings=\S*{re.escape(RINGS_FOLDER)}(\}}|/slurm/\$SLURM_JOB_ID)$", text(script), re.MULTILINE
        )
        assert os.access(FOLDER / script, os.X_OK)


def test_a_task_writes_into_the_folder_of_its_job_where_there_is_one(node: Path) -> None:
    tap = f"export NCCL_PROFILER_PLUGIN={node / LIBRARY}\n"
    assert prolog(node, SLURM_JOB_ID="4711") == tap
    own = node / "rings/slurm/4711"
    own.mkdir(parents=True)
    assert prolog(node, SLURM_JOB_ID="4711") == f"{tap}export WIREWATCH_TAP_DIR={own}\n"
    assert prolog(node) == prolog(node, SLURM_JOB_ID="4712") == tap


def prolog(node: Path, **environment: str) -> str:
    places = {"WIREWATCH_TAP": str(node / LIBRARY), "WIREWATCH_TAP_DIR": str(node / "rings")}
    done = subprocess.run(
        [str(FOLDER / "task-prolog.sh")], capture_output=True, text=True, check=True,
        env={"PATH": os.environ["PATH"], **places, **environment},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def test_a_task_gets_the_tap_where_all_of_it_is_there(node: Path) -> None:
    assert prolog(node) == f"export NCCL_PROFILER_PLUGIN={node / LIBRARY}\n"
    (node / "rings").rmdir()
    assert prolog(node) == ""
    (node / "rings").mkdir()
    (node / LIBRARY).unlink()
    assert prolog(node) == ""


HELD = "rack\nnot fit for jobs, but in use, since the brake holds (rack r1: full): FAILED nvlink.link_down\n"


def test_the_first_task_of_a_job_says_that_the_brake_holds(node: Path) -> None:
    """Also where the job has a choice of its own, and not for want of a whole file."""
    brake = node / "brake"
    there = {"WIREWATCH_BRAKE": str(brake), "NCCL_PROFILER_PLUGIN": "none"}
    assert prolog(node, **there) == ""
    brake.write_text(HELD, "ascii")
    line = f"print wirewatch: g1 is {HELD.splitlines()[1]}\n"
    assert prolog(node, **there, SLURMD_NODENAME="g1", SLURM_LOCALID="0") == line
    assert prolog(node, **there, SLURM_LOCALID="1") == ""
    brake.write_text("rack\n", "ascii")
    assert prolog(node, **there) == ""


@pytest.mark.parametrize("own", ["none", "", "inspector"])
def test_a_task_keeps_its_own_choice(node: Path, own: str) -> None:
    assert prolog(node, NCCL_PROFILER_PLUGIN=own) == ""


def hook(node: Path, environ: str = "", *, mounts: int = 0, job: str = "4711") -> tuple[str, str]:
    """The container's environment after the hook, and what it mounted; `mounts`: how enroot-mount ends."""
    programs = node / "bin"
    programs.mkdir()
    program = programs / "enroot-mount"
    program.write_text(f'#!/bin/sh\necho "$@" > {node}/asked\ncat >> {node}/asked\nexit {mounts}\n')
    program.chmod(0o755)
    (node / "environ").write_text(environ)
    script = node / "hook.sh"
    script.write_text(
        text("enroot-hook.sh").replace(TAP, str(node / LIBRARY)).replace(RINGS_FOLDER, str(node / "rings"))
    )
    (node / "rings/slurm/4711").mkdir(parents=True, exist_ok=True)
    bash = shutil.which("bash")
    assert bash
    variables = {"ENROOT_ENVIRON": str(node / "environ"), "ENROOT_ROOTFS": str(node / "rootfs")}
    variables |= {"SLURM_JOB_ID": job} if job else {}
    path = f"{programs}:{os.environ['PATH']}"
    subprocess.run([bash, str(script)], check=True, env={"PATH": path, **variables})
    asked = node / "asked"
    return (node / "environ").read_text(), asked.read_text() if asked.exists() else ""


def test_a_container_of_enroot_gets_library_and_folder(node: Path) -> None:
    environ, asked = hook(node, "A=b\n")
    own = node / "rings/slurm/4711"
    assert environ == f"A=b\nNCCL_PROFILER_PLUGIN={node / LIBRARY}\nWIREWATCH_TAP_DIR={own}\n"
    how, library, rings = asked.splitlines()
    assert how == f"--root {node}/rootfs -"
    assert library.split()[:3] == [str(node / LIBRARY), str(node / LIBRARY), "none"]
    assert "ro" in library.split()[3].split(",")
    assert rings.split()[:3] == [str(own), str(own), "none"]
    assert {"rw", "noexec", "nosuid"} <= set(rings.split()[3].split(","))


@pytest.mark.parametrize("job", ["", "4712"])
def test_a_container_without_a_folder_of_its_own_gets_nothing_of_others(node: Path, job: str) -> None:
    assert hook(node, job=job) == ("", "")


def test_a_container_that_cannot_mount_it_starts_without(node: Path) -> None:
    assert hook(node, mounts=1)[0] == ""


def test_a_container_with_a_profiler_of_its_own_keeps_it(node: Path) -> None:
    assert hook(node, "NCCL_PROFILER_PLUGIN=none\n") == ("NCCL_PROFILER_PLUGIN=none\n", "")


def test_a_node_without_the_tap_changes_no_container(node: Path) -> None:
    (node / LIBRARY).unlink()
    assert hook(node) == ("", "")


def test_the_device_of_cdi_mounts_and_names_it() -> None:
    told = json.loads(text("cdi.json"))
    assert re.fullmatch(r"[a-z][a-z0-9.-]*/[a-z][a-z0-9-]*", told["kind"])
    (device,) = told["devices"]
    assert device["containerEdits"]["env"] == [SETTING]
    (library,) = told["containerEdits"]["mounts"]
    assert library["hostPath"] == library["containerPath"] == TAP
    assert "ro" in library["options"]


JOB, GROUP, AGENT = 50_000, 40_000, 40_001
SCRIPT = """
set -e
mount -t tmpfs -o mode=3773 rings "$RINGS"
chown $AGENT:$GROUP "$RINGS"
chmod 3773 "$RINGS"
here=$SLURM part=prolog
. "$SLURM/lib.sh"
set +e
"""
"""A folder of rings as on a node, in a namespace of mounts of its own."""


@pytest.fixture
def slurm(tmp_path: Path) -> Callable[..., list[str]]:
    """Run lines after lib.sh of deploy/slurm."""
    (tmp_path / "rings").mkdir()
    for name in ("lib.sh", "brake.sh"):
        shutil.copy(ROOT / "deploy/slurm" / name, tmp_path)
    (tmp_path / "wirewatch-slurm.conf").write_text(
        f"RINGS={tmp_path}/rings\nRUN={tmp_path}/run\nLOGGER=true\n"
    )

    def run(lines: str, **environment: str) -> list[str]:
        variables = {
            "RINGS": f"{tmp_path}/rings", "SLURM": str(tmp_path), "AGENT": str(AGENT), "GROUP": str(GROUP),
            "SLURM_JOB_ID": "4711", "SLURM_JOB_UID": str(JOB), "PATH": os.environ["PATH"], **environment,
        }  # fmt: skip
        bash = ["unshare", "--mount", "bash", "-c", SCRIPT + lines]
        done = subprocess.run(bash, capture_output=True, text=True, check=True, env=variables)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return run


LOOK = """
stat -c '%n %u %g %a' "$RINGS"/slurm "$RINGS"/slurm/* 2>&1 | sed "s|$RINGS/||"
"""


@needs_root
def test_the_prolog_makes_a_folder_of_a_job_and_the_epilog_removes_it(
    slurm: Callable[..., list[str]],
) -> None:
    told = slurm(f"""
        make_rings; echo $?; {LOOK}
        touch "$RINGS"/slurm/4711/x.ring
        head -c 70000000 /dev/zero > "$RINGS"/slurm/4711/full 2>/dev/null
        stat -f -c %a "$RINGS"/slurm/4711
        head -c 1000 /dev/zero > "$RINGS"/another && stat -c %s "$RINGS"/another
        make_rings; ls "$RINGS"/slurm/4711
        remove_rings; ls "$RINGS"/slurm; grep -c "$RINGS"/slurm /proc/self/mountinfo
        remove_rings; echo ended
    """)
    assert told == [
        "0", f"slurm 0 {GROUP} 2751", f"slurm/4711 {JOB} {GROUP} 2770", "0", "1000", "full", "x.ring", "0",
        "ended",
    ]  # fmt: skip


@needs_root
@pytest.mark.parametrize(
    ("guard", "before", "environment"),
    [
        ("a link in its place", 'ln -s "$SLURM/elsewhere" "$RINGS/slurm"', {}),
        ("a folder of the agent's", 'mkdir -m 0751 "$RINGS/slurm"; chown $AGENT "$RINGS/slurm"', {}),
        ("others may write there", 'mkdir -m 0777 "$RINGS/slurm"', {}),
        ("no number of a job", "", {"SLURM_JOB_ID": "../4711"}),
        ("no user", "", {"SLURM_JOB_UID": ""}),
        ("options in a user", "", {"SLURM_JOB_UID": "0,mode=0777"}),
        ("switched off", "RINGS=", {}),
        ("no folder", "RINGS=$RINGS/none", {}),
        ("no size of memory", "RINGS_SIZE=much", {}),
    ],
)
def test_no_folder_of_a_job_is_made_where_somebody_else_could_choose_it(
    slurm: Callable[..., list[str]], tmp_path: Path, guard: str, before: str, environment: dict[str, str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o751)
    elsewhere.chmod(0o751)
    look = "find $all/slurm/ -mindepth 1 2>/dev/null; grep -c wirewatch-rings /proc/self/mountinfo; true"
    told = slurm(f"all=$RINGS; {before}\nmake_rings; echo started; {look}", **environment)
    assert told == ["started", "0"], guard
    assert list(elsewhere.iterdir()) == []
