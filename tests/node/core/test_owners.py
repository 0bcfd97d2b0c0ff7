"""Whose a process is by its control group, as kubelet, Slurm and container engines name these."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.node.collectors.drawn import Files
from tests.rows import each
from wirewatch.core.owners import SLURM_CONFS, owner_of, process_owner, state_and_parent
from wirewatch.core.types import Absent, Why

POD = "0f2c4a8e-1b3d-4c5e-8f90-a1b2c3d4e5f6"
OTHER = "11111111-2222-4333-8444-555555555555"
UNIT = POD.replace("-", "_")
STATIC = "a1" * 16
ID = "0123456789ab" + "cdef" * 13
USER = "/user.slice/user-1000.slice/user@1000.service/app.slice"
STEP = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"
CRI = f"cri-containerd-{ID}.scope"
BURSTABLE = "kubepods-burstable.slice"
BEST = f"kubepods-besteffort.slice/kubepods-besteffort-pod{UNIT}.slice"
V1 = "\n".join(
    f"{n}:{each}:/slurm/uid_1000/job_12/step_batch/task_0"
    for n, each in ((9, "cpuset"), (7, "memory"), (5, "devices"), (3, "freezer"))
)

REAL = {
    # Both drivers of the kubelet (kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go).
    "burstable": (f"0::/kubepods.slice/{BURSTABLE}/kubepods-burstable-pod{UNIT}.slice/{CRI}", POD),
    "best effort": (
        f"0::/kubepods.slice/{BEST}/crio-{ID}.scope/container",
        POD,
    ),
    "guaranteed": (f"0::/kubepods.slice/kubepods-pod{UNIT}.slice/{CRI}", POD),
    "static pod": (f"0::/kubepods.slice/{BURSTABLE}/kubepods-burstable-pod{STATIC}.slice/x.scope", STATIC),
    "below --cgroup-root, as kind has it": (
        f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNIT}.slice/{CRI}",
        POD,
    ),
    "cgroupfs": (f"0::/kubepods/besteffort/pod{POD}/{ID}", POD),
    "cgroupfs, guaranteed": (f"0::/kubepods/pod{POD.upper()}/{ID}", POD),
    "cgroupfs, static pod": (f"0::/kubepods/burstable/pod{STATIC}/{ID}", STATIC),
    "cgroupfs below --cgroup-root": (f"0::/kubelet/kubepods/burstable/pod{POD}/{ID}", POD),
    "cgroupfs, version 1": (
        f"11:devices:/kubepods/besteffort/pod{POD}/{ID}\n1:name=systemd:/kubepods/besteffort/pod{POD}/{ID}",
        POD,
    ),
    # Texts of opentelemetry-java-instrumentation and of cadvisor's users: the drivers of the two differ.
    "containerd not by systemd": (
        f"10:pids:/system.slice/containerd.service/kubepods-pod{UNIT}.slice:cri-containerd:{ID}", POD,
    ),
    "containerd not by systemd, version 1": (
        f"11:freezer:/kubepods-burstable-pod{UNIT}.slice:cri-containerd:{ID}", POD,
    ),
    # Slurm 26.05, src/plugins/cgroup/v2/cgroup_v2.c and doc/html/cgroup_v2.shtml.
    "Slurm": (f"0::{STEP}", "slurm:4711"),
    "Slurm, several slurmd": (
        "0::/system.slice/gamba1_slurmstepd.scope/job_7/step_batch/user/task_special",
        "slurm:7",
    ),
    "Slurm, CgroupSlice": ("0::/batch.slice/slurmstepd.scope/job_7/step_extern/user", "slurm:7"),
    "Slurm, by SLUID": (
        "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0",
        "slurm:sEKNKTV3WPV500",
    ),
    "Slurm's own": ("0::/system.slice/slurmstepd.scope/system", ""),
    # src/plugins/cgroup/v1/xcgroup.c; hierarchies that Slurm does not use have the service's group.
    "Slurm, version 1": (f"{V1}\n1:name=systemd:/system.slice/slurmd.service", "slurm:12"),
    "Slurm, version 1, several slurmd": ("5:devices:/slurm_n3/uid_0/job_12\n0::/", "slurm:12"),
    "a session that Slurm adopted": (f"{V1}\n0::/user.slice/user-7.slice/session-2.scope", "slurm:12"),
    "Slurm's job in a pod": (f"0::/kubepods/pod{POD}/{ID}/slurm/uid_1/job_7", POD),
    # docker, podman and cri-o.
    "docker by systemd": (f"0::/system.slice/docker-{ID}.scope", "c"),
    "docker, a slice of its own": (f"0::/gpu.slice/gpu-ml.slice/docker-{ID}.scope", "c"),
    "docker by cgroupfs": (f"4:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}/init.scope", "c"),
    "podman": (f"0::/machine.slice/libpod-{ID}.scope/container", "c"),
    "podman's pod": (f"0::/machine.slice/machine-libpod_pod_{ID}.slice/libpod-{ID}.scope", "c"),
    "podman by cgroupfs": (f"0::/libpod_parent/libpod-{ID}", "c"),
    "podman's pod by cgroupfs": (f"0::/libpod_parent/{'9' * 64}/libpod-{ID}", "c"),
    "podman's monitor": (f"0::/machine.slice/libpod-conmon-{ID}.scope", ""),
    "kind's node": (f"0::/docker/{ID}/kubelet/kubepods/pod{POD}/{ID}", "c"),
    "half an id": (f"0::/system.slice/docker-{ID[:40]}.scope", ""),
    "a session": ("0::/user.slice/user-1000.slice/session-2.scope", ""),
    "the root": ("0::/", ""),
    "nothing": ("", ""),
    "no such text": ("docker", ""),
    # As readers in other namespaces see them (kernel, cgroup_path_ns and kernfs_path_from_node).
    "another pod of the class": (f"0::/../../kubepods-burstable-pod{UNIT}.slice/{CRI}", POD),
    "a pod of another class": (
        f"0::/../../../{BEST}/{CRI}",
        POD,
    ),
    "a pod beside other things": (f"0::/../../kubepods.slice/kubepods-pod{UNIT}.slice/x", POD),
    "a pod by cgroupfs": (f"0::/../../pod{POD}/{ID}", POD),
    "a pod of another class by cgroupfs": (f"0::/../../../burstable/pod{POD}/{ID}", POD),
    "a pod by cgroupfs, from outside": (f"0::/../../kubepods/burstable/pod{POD}/{ID}", POD),
    "Slurm from a pod": ("0::/../../../../system.slice/slurmstepd.scope/job_7/step_0", "slurm:7"),
    "Slurm from a service": ("0::/../slurmstepd.scope/job_7/step_0", "slurm:7"),
    "Slurm, version 1, from a container": ("5:devices:/../../slurm/uid_1/job_7", "slurm:7"),
    "docker from a service": (f"0::/../docker-{ID}.scope", "c"),
    "podman from docker": (f"0::/../../machine.slice/libpod-{ID}.scope", "c"),
    "docker by cgroupfs from a service": (f"4:memory:/../../docker/{ID}", "c"),
    "another container of the reader's pod": (f"0::/../{CRI}", "c"),
    "a container beside the reader's": (f"4:memory:/../{ID}", ""),
    "a job beside the reader's": ("0::/../job_7/step_0", ""),
    "a user's job beside the reader's": ("5:devices:/../uid_1/job_7", ""),
}  # fmt: skip


@each("case", REAL)
def test_the_owner_is_in_the_control_group(case: str) -> None:
    text, owner = REAL[case]
    meant = f"container:{ID[:12]}" if owner == "c" else f"pod:{owner}" if owner in {POD, STATIC} else owner
    assert owner_of(text) == meant


FORGED = {
    "a service of a user": f"0::{USER}/job_4711",
    "all of Slurm's path below it": f"0::{USER}{STEP}",
    "a slice of a user's manager": f"0::{USER}/kubepods.slice/kubepods-pod{UNIT}.slice/x",
    "a container of a user": f"0::{USER}/libpod-{ID}.scope",
    "a user's slice from beside it": f"0::/../user-1000.slice/user@1000.service/kubepods-pod{UNIT}.slice",
    "a user's group from beside it": "0::/../../app.slice/slurmstepd.scope/job_7",
    "a service that got a group": f"0::/system.slice/evil.service/slurmstepd.scope/job_7/kubepods/pod{POD}",
    "a service by a scope's name": "0::/system.slice/slurmstepd.service/job_7",
    "a container of LXC": f"0::/lxc.payload.c1/kubepods/pod{POD}/x",
    "a machine": f"0::/machine.slice/systemd-nspawn@c.service/payload/system.slice/docker-{ID}.scope",
    "a second line by another end of line": f"0::{USER}/x\u20280::{STEP}",
    "and by a form feed": f"0::{USER}/x\x0c0::{STEP}",
    "and by a carriage return": f"0::{USER}/x\r0::{STEP}",
    "colons": f"0::{USER}/x:{STEP}",
    "two that contradict": f"5:devices:/slurm/uid_1/job_7\n4:memory:/docker/{ID}",
    "two jobs": "5:devices:/slurm/uid_1/job_7\n4:memory:/slurm/uid_1/job_8",
    "no uid": "5:devices:/slurm/job_7",
    "a longer name": "0::/system.slice/slurmstepd.scope/job_7x/step_0",
    "a longer scope": f"0::/system.slice/docker-{ID}.scopes",
    "a pod at the root": f"0::/pod{POD}/x",
    "a service's job": "0::/system.slice/myjob_5.service",
    "the reader's own": "0::/job_7",
    "the reader's own, with a scope": "0::/slurmstepd.scope/job_7",
}


@each("text", FORGED.values(), ids=[*FORGED])
def test_a_name_that_a_user_can_choose_names_nobody(text: str) -> None:
    assert owner_of(text) == ""


LINES = (text.partition("::")[2] for text, owner in REAL.values() if owner and "\n" not in text)
OWNED = [
    "/user.slice", "/user.slice/user-1000.slice", USER, f"{USER}/libpod-{ID}.scope",
    "/../user-1000.slice", "/../../user.slice/user-1000.slice/user@1000.service",
    "/system.slice/evil.service", "/lxc.payload.c1", "/machine.slice/systemd-nspawn@c.service",
    "/../app.slice", *filter(None, LINES),
]  # fmt: skip
PARTS = [
    "job_4711", "slurmstepd.scope", "system.slice", "user.slice", "kubepods", "kubepods.slice", f"pod{OTHER}",
    f"kubepods-pod{OTHER.replace('-', '_')}.slice", f"kubepods-pod{OTHER}.slice:cri-containerd:{'7' * 64}",
    f"docker-{'7' * 64}.scope", "docker", "7" * 64, "slurm", "uid_0", "containerd.service", "burstable", "..",
    "sEKNKTV3WPV500", "0::", "\u20280::", "\x1c0::", " ",
]  # fmt: skip
NAMES = st.one_of(st.sampled_from(PARTS), st.text(st.characters(exclude_characters="/\n"), min_size=1))


@given(st.sampled_from(OWNED), st.lists(NAMES, min_size=1, max_size=6))
@example("/user.slice", ["system.slice", "slurmstepd.scope", "job_4711"])
def test_nothing_below_an_owner_or_a_users_slice_changes_the_answer(above: str, below: list[str]) -> None:
    assert owner_of(f"0::{above}/{'/'.join(below)}") == owner_of(f"0::{above}")


def files(
    conf: str | None, *sockets: str, spool: str = "/var/spool/slurmd", text: str = f"0::{STEP}"
) -> Files:
    """A process 9 and what slurmd has."""
    texts: dict[str, str | bytes | Absent] = {"/proc/9/cgroup": text}
    texts |= {} if conf is None else {SLURM_CONFS[0]: conf}
    return Files(texts | {f"{spool}/{name}": "" for name in sockets})


OTHERS = ("n1_12.0", "n1_47110.0", "job04711", "cred_state", "4711.0", "n_4711.x", "n_4711")


@pytest.mark.parametrize(
    ("guard", "node", "owner"),
    [
        ("slurmd runs other jobs alone", files("NodeName=n1\n", *OTHERS), ""),
        ("slurmd runs it", files("NodeName=n1\n", *OTHERS, "n1_4711.4294967292"), "slurm:4711"),
        ("slurmd runs a part of it", files("NodeName=n1\n", *OTHERS, "my_n1_4711.0.1"), "slurm:4711"),
        ("no socket, no slurmd", files("NodeName=n1\n", "cred_state"), "slurm:4711"),
        ("no slurm.conf", files(None, *OTHERS), "slurm:4711"),
        ("another folder by slurm.conf", files("slurmdspooldir = /x # y\n", *OTHERS), "slurm:4711"),
        ("that folder", files("a=b\n SlurmdSpoolDir=/x\n", *OTHERS, spool="/x"), ""),
        ("a folder by the node's name", files("SlurmdSpoolDir=/x/%n\n", *OTHERS, spool="/x"), "slurm:4711"),
        ("a comment", files("#SlurmdSpoolDir=/x\n", *OTHERS, spool="/x"), "slurm:4711"),
        ("a SLUID", files("", *OTHERS, text=f"0::{STEP.replace('job_4711', 'sEKNKTV3WPV500')}"),
         "slurm:sEKNKTV3WPV500"),
        ("a pod", files("", *OTHERS, text=f"0::/kubepods/pod{STATIC}/x"), f"pod:{STATIC}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_slurmds_own_files_may_contradict_a_job(guard: str, node: Files, owner: str) -> None:
    assert process_owner(node, 9) == owner, guard


def test_slurmds_configuration_is_looked_for_where_it_keeps_it_too() -> None:
    node = files(None, *OTHERS)
    node.texts[SLURM_CONFS[1]] = "ClusterName=x\n"
    assert process_owner(node, 9) == ""
    node.texts[SLURM_CONFS[0]] = Absent(Why.DENIED, "no")
    assert process_owner(node, 9) == ""


def test_a_process_that_cannot_be_read_has_no_owner() -> None:
    assert process_owner(Files({"/proc/9/cgroup": Absent(Why.DENIED, "no")}), 9) == ""
    assert process_owner(Files(), 9) == ""


@each(
    ("stat", "found"),
    [
        ("7 (a b) c) S 1 7 7 0", ("S", 1)), ("7 (x) T 4000", ("T", 4000)), ("7 (x) S", None), ("", None),
        ("7 (x) S one", None), ("7 x S 1", None),
    ],
)  # fmt: skip
def test_state_and_parent_are_behind_a_name_that_may_hold_anything(
    stat: str, found: tuple[str, int] | None
) -> None:
    assert state_and_parent(stat) == found
