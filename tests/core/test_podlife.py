"""Which pods live, of a drawn file tree in every layout that a kubelet makes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collectors.drawn import Files
from wirewatch.core.types import Absent, Why
from wirewatch.probe.gate import CGROUPS, LOGS, PodLife, read_podlife

UIDS = tuple(f"8c4f2d6b-9e1a-4c3d-a2b7-f0e95d13684{n}" for n in range(4))
STATIC = "3f1c9d527b6e4a189c35d2e4f6a8b1c7"
SYSTEMD, CGROUPFS = "kubepods.slice", "kubepods"
ROOTS = [
    f"{CGROUPS}/{root}"
    for root in (
        SYSTEMD, CGROUPFS, "kubelet.slice/kubelet-kubepods.slice", "kubelet/kubepods", f"memory/{SYSTEMD}",
        f"memory/{CGROUPFS}", f"pids/{SYSTEMD}", f"cpu,cpuacct/{CGROUPFS}", f"systemd/{SYSTEMD}",
    )
]  # fmt: skip
CLASSES = ("guaranteed", "burstable", "besteffort")


def folder(root: str, qos: str, uid: str = "") -> str:
    """Where a kubelet keeps a pod's cgroup, or those of a class, by the driver that a root shows."""
    top = root.rpartition("/")[2]
    if not top.endswith(".slice"):
        parts = [root, *([qos] if qos != "guaranteed" else []), *([f"pod{uid}"] if uid else [])]
        return "/".join(parts)
    name = top.removesuffix(".slice") + (f"-{qos}" if qos != "guaranteed" else "")
    inside = f"{root}/{name}.slice" if qos != "guaranteed" else root
    return f"{inside}/{name}-pod{uid.replace('-', '_')}.slice" if uid else inside


def tree(root: str = ROOTS[0], *alive: tuple[str, str]) -> Files:
    """Files of a node: the cgroups of classes below a root, and those of pods (class, UID)."""
    files = Files()
    for qos in CLASSES[1:]:
        files.texts[f"{folder(root, qos)}/cgroup.procs"] = ""
    for qos, uid in alive:
        files.texts[f"{folder(root, qos, uid)}/memory.max"] = "max"
    return files


def logs(files: Files, *pods: tuple[str, str, str]) -> Files:
    """Log folders of pods: namespace, name, UID."""
    for namespace, name, uid in pods:
        files.texts[f"{LOGS}/{namespace}_{name}_{uid}/main/0.log"] = ""
    return files


def life(files: Files) -> PodLife:
    told = read_podlife(files)
    assert isinstance(told, PodLife), told
    return told


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("qos", CLASSES)
def test_a_pod_with_a_cgroup_lives_and_one_without_has_ended(root: str, qos: str) -> None:
    files = logs(tree(root, (qos, UIDS[0])), ("ml", "train-0", UIDS[0]), ("ml", "done-0", UIDS[1]))
    told = life(files)
    assert told.alive == {UIDS[0]}
    assert told.uids("ml", "train-0") == (UIDS[0],)
    assert told.uids("ml", "done-0") == ()


def test_a_static_pod_goes_by_its_hash() -> None:
    files = logs(tree(ROOTS[0], ("burstable", STATIC)), ("kube-system", "etcd-node1", STATIC))
    assert life(files).uids("kube-system", "etcd-node1") == (STATIC,)


def test_a_pod_of_an_old_name_has_the_uid_that_lives() -> None:
    files = logs(
        tree(ROOTS[0], ("burstable", UIDS[1])), ("ml", "train-0", UIDS[0]), ("ml", "train-0", UIDS[1])
    )
    assert life(files).uids("ml", "train-0") == (UIDS[1],)


def test_two_pods_of_one_name_that_both_live_are_both_told() -> None:
    files = logs(
        tree(ROOTS[0], ("burstable", UIDS[1]), ("guaranteed", UIDS[0])),
        ("ml", "train-0", UIDS[0]), ("ml", "train-0", UIDS[1]),
    )  # fmt: skip
    assert life(files).uids("ml", "train-0") == (UIDS[0], UIDS[1])


@pytest.mark.parametrize("pod", [("ml", "train"), ("m", "l_train-0"), ("ml", "other"), ("", "")])
def test_a_pod_without_a_log_folder_is_not_known(pod: tuple[str, str]) -> None:
    files = logs(tree(), ("ml", "train-0", UIDS[0]))
    files.texts[f"{LOGS}/{pod[0]}_{pod[1]}"] = "no folder of a pod: no UID"
    assert life(files).uids(*pod) is None


def test_while_a_living_pod_has_no_log_folder_none_is_said_to_have_ended() -> None:
    """A pod of the same name that was made anew waits for its volumes: a cgroup, and no log folder yet."""
    files = logs(tree(ROOTS[0], ("burstable", UIDS[1])), ("ml", "train-0", UIDS[0]), ("ml", "b", UIDS[2]))
    assert life(files).uids("ml", "train-0") is None
    logs(files, ("ml", "train-0", UIDS[1]))
    assert life(files).uids("ml", "train-0") == (UIDS[1],)
    assert life(files).uids("ml", "b") == ()


def test_cgroups_of_both_drivers_count_where_both_are_there() -> None:
    files = tree(ROOTS[0], ("burstable", UIDS[0]))
    files.texts |= tree(ROOTS[1], ("besteffort", UIDS[1])).texts
    assert life(logs(files, ("a", "b", UIDS[0]))).alive == {UIDS[0], UIDS[1]}


UNREADABLE = [Why.DENIED, Why.LOST, Why.TIMEOUT, Why.MALFORMED, Why.UNSUPPORTED]


@pytest.mark.parametrize("why", UNREADABLE)
@pytest.mark.parametrize(
    "path", [LOGS, ROOTS[0], f"{ROOTS[0]}/kubepods-burstable.slice", f"{ROOTS[0]}/kubepods-besteffort.slice"]
)
def test_what_cannot_be_read_says_nothing_about_any_pod(path: str, why: Why) -> None:
    files = logs(tree(ROOTS[0], ("burstable", UIDS[0])), ("ml", "train-0", UIDS[0]))
    files.texts[path] = refused = Absent(why, path, 13)
    assert read_podlife(files) == refused


def test_a_node_without_pods_cgroups_says_nothing() -> None:
    """As in a container that sees only its own cgroup, or with --cgroups-per-qos=false."""
    told = read_podlife(logs(Files({f"{CGROUPS}/memory.max": "max"}), ("ml", "train-0", UIDS[0])))
    assert isinstance(told, Absent)
    assert told.why is Why.MISSING


def test_a_tree_without_the_classes_of_a_kubelet_says_nothing() -> None:
    files = logs(Files({f"{ROOTS[0]}/kubepods-burstable.slice/cgroup.procs": ""}), ("ml", "a", UIDS[0]))
    told = read_podlife(files)
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED


PODS = st.lists(st.sampled_from([("ml", f"pod-{n % 3}", uid) for n, uid in enumerate(UIDS)]), unique=True)


@given(PODS, st.sets(st.sampled_from(UIDS)), st.sampled_from(ROOTS), st.sampled_from(CLASSES))
def test_no_living_pod_is_ever_said_to_have_ended(
    named: list[tuple[str, str, str]], alive: set[str], root: str, qos: str
) -> None:
    told = read_podlife(logs(tree(root, *((qos, uid) for uid in alive)), *named))
    if isinstance(told, Absent):
        assert not named  # no pod at all leaves no log folder
        return
    for namespace, name, uid in named:
        living = told.uids(namespace, name)
        assert living != () or uid not in alive
        assert living is None or (uid in living) == (uid in alive)
