"""Whose a process is by its control group, as kubelet, Slurm and container engines name these."""

import pytest

from wirewatch.core.owners import owner_of, state_and_parent

POD = "0f2c4a8e-1b3d-4c5e-8f90-a1b2c3d4e5f6"
ID = "0123456789ab" + "cdef" * 13


@pytest.mark.parametrize(
    ("cgroup", "owner"),
    [
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "slurm:4711"),
        ("5:devices:/slurm/uid_1000/job_12/step_batch\n1:name=systemd:/", "slurm:12"),
        (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/x",
         f"pod:{POD}"),
        (f"0::/kubepods/besteffort/pod{POD}/abc", f"pod:{POD}"),
        ("0::/user.slice/user-1000.slice/session-2.scope", ""),
        ("5:devices:/slurm/uid_1000/job_12\n1:name=systemd:/", "slurm:12"),
        (f"0::/kubepods/pod{POD}/slurm/job_7/step_0", f"pod:{POD}"),
        (f"0::/kubepods/pod{'a1' * 16}/x", f"pod:{'a1' * 16}"),
        (f"0::/system.slice/docker-{ID}.scope", f"container:{ID[:12]}"),
        (f"4:memory:/docker/{ID}", f"container:{ID[:12]}"),
        (f"0::/machine.slice/libpod-{ID}.scope/container", f"container:{ID[:12]}"),
        (f"0::/system.slice/docker-{ID[:40]}.scope", ""),
        ("0::/system.slice/myjob_5.service", ""),
        ("0::/../../pod12/x", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_owner_is_in_the_control_group(cgroup: str, owner: str) -> None:
    assert owner_of(cgroup) == owner


@pytest.mark.parametrize(
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
