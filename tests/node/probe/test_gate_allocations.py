"""Who holds which GPU: every form of device id, jobs by number, and what is not understood."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.collectors.drawn import Files
from tests.rows import each
from tests.support import Node
from wirewatch.core.ports import Gpu, Pod, SlurmJob
from wirewatch.core.types import Absent, Why
from wirewatch.probe.gate import (
    CGROUPS,
    DRIVER,
    LOGS,
    GpuNames,
    Holding,
    PodLife,
    job_holdings,
    pod_holdings,
    read_minors,
    read_podlife,
)

UUIDS = tuple(f"GPU-8c4f2d6b-9e1a-4c3d-a2b7-f0e95d13684{n}" for n in range(4))
MIGS = tuple(f"MIG-1b2c3d4e-9e1a-4c3d-a2b7-f0e95d13684{n}" for n in range(4))
GPUS = tuple(Gpu(n, uuid, f"0000:{n + 1}b:00.0", "NVIDIA H200") for n, uuid in enumerate(UUIDS))
CROSSED = GpuNames({0: UUIDS[1], 1: UUIDS[0], 2: UUIDS[2], 3: UUIDS[3]}, {MIGS[0]: UUIDS[3]})
"""The driver met the second GPU first."""
STRAIGHT = GpuNames(dict(enumerate(UUIDS)))
ALL = tuple(UUIDS)
UID = "8c4f2d6b-9e1a-4c3d-a2b7-f0e95d136849"
LIFE = PodLife({("ml", "train-0"): (UID,), ("ml", "done-0"): ("old",)}, frozenset({UID}))
BLIND = Absent(Why.DENIED, "no log folder")
GPU = "nvidia.com/gpu"


def given_to(
    *devices: str, resource: str = GPU, names: GpuNames = CROSSED, gpus: Sequence[Gpu] = GPUS
) -> Holding:
    pod = Pod("ml", "train-0", tuple((resource, device) for device in devices))
    (holding,) = pod_holdings([pod], gpus, LIFE, names)
    return holding


@each(
    ("device", "held"),
    [
        (UUIDS[2], 2),
        (f"{UUIDS[2]}::7", 2),
        (MIGS[0], 3),
        (f"{MIGS[0]}::1", 3),
        (f"MIG-{UUIDS[1]}/2/0", 1),
        ("1", 1),
        ("1:0", 1),
        ("3::12", 3),
        ("nvidia0", 1),
        ("nvidia0/gi0", 1),
        ("nvidia1/vgpu3", 0),
        ("nvidia2/gi1/vgpu0", 2),
        ("0000:2b:00.0", 1),
        ("00000000:2B:00.0", 1),
        ("0000:2b:00.4", 1),
    ],
)
def test_every_form_of_a_device_id_is_one_gpu(device: str, held: int) -> None:
    assert given_to(device) == Holding(f"pod:{UID}", "pod ml/train-0", (UUIDS[held],))


@each(
    "device",
    ["GPU-00000000-0000-4000-8000-000000000000", MIGS[1], f"MIG-{MIGS[0]}/1/0", "4", "nvidia9", "nvidia0/x",
     "nvidiactl", "", "gpu0", "GPU-", "all", "::1", "MIG-GPU-00000000-0000-4000-8000-000000000000/1/0"],
)  # fmt: skip
def test_an_id_that_is_not_understood_holds_all_gpus_and_says_so(device: str) -> None:
    told = given_to(UUIDS[0], device)
    assert told.gpus == ALL
    assert told.about.startswith("pod ml/train-0; holds all GPUs: ")
    assert f"{GPU} {device}" in told.about


def test_a_card_of_a_network_that_goes_by_nvidia_com_is_no_gpu() -> None:
    pod = Pod("ml", "train-0", (("nvidia.com/hostdev", "0000:f8:00.2"),))
    assert pod_holdings([pod], GPUS, LIFE, CROSSED) == ()
    with_gpu = Pod("ml", "train-0", (*pod.devices, (GPU, UUIDS[0])))
    assert pod_holdings([with_gpu], GPUS, LIFE, CROSSED)[0].gpus == (UUIDS[0],)


def test_an_address_holds_all_gpus_where_one_of_them_has_not_given_its_own() -> None:
    lost = Gpu(3, UUIDS[3], "", "", Absent(Why.LOST, "fallen off the bus"))
    assert given_to("0000:f8:00.2", gpus=(*GPUS[:3], lost)).gpus == ALL


def test_a_device_number_that_is_not_known_holds_all_gpus() -> None:
    assert given_to("nvidia0", names=GpuNames({1: UUIDS[0]})).gpus == ALL


@pytest.mark.parametrize(
    "names", [GpuNames({0: "GPU-elsewhere"}, {}), GpuNames({}, {MIGS[0]: "GPU-elsewhere"})]
)
def test_a_name_of_a_gpu_that_is_not_here_holds_all_gpus(names: GpuNames) -> None:
    assert given_to("nvidia0", MIGS[0], names=names).gpus == ALL


def test_several_devices_are_several_gpus_in_the_order_of_the_node() -> None:
    assert given_to(UUIDS[3], f"{UUIDS[0]}::1", UUIDS[0]).gpus == (UUIDS[0], UUIDS[3])


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.18gb"])
def test_resources_of_nvidia_count(resource: str) -> None:
    assert given_to(UUIDS[0], resource=resource).gpus == (UUIDS[0],)


def test_other_resources_do_not_count_and_an_unknown_one_of_nvidia_is_all_gpus() -> None:
    others = (("rdma/hca", "3"), ("example.org/gpu", UUIDS[1]))
    assert pod_holdings([Pod("ml", "train-0", others)], GPUS, LIFE, CROSSED) == ()
    unknown = Pod("ml", "train-0", (*others, ("nvidia.com/vf", "x7")))
    assert pod_holdings([unknown], GPUS, LIFE, CROSSED)[0].gpus == ALL


def claimed(*claims: tuple[str, str], names: GpuNames = STRAIGHT) -> tuple[Holding, ...]:
    pod = Pod("ml", "train-0", (), tuple((driver, "node-1", device) for driver, device in claims))
    return pod_holdings([pod], GPUS, LIFE, names)


@pytest.mark.parametrize("device", ["gpu-2", "gpu-2-mig-19-4-1", "gpu-2-mig-1g18gb-19-0"])
@pytest.mark.parametrize("driver", [DRIVER, "k8s.gpu.nvidia.com/device", "nvidia.com/gpu"])
def test_devices_of_the_dra_driver_are_gpus(driver: str, device: str) -> None:
    assert [h.gpus for h in claimed((driver, device))] == [(UUIDS[2],)]


def test_a_claimed_number_that_may_mean_two_gpus_holds_both() -> None:
    """gpu-0 was the first of NVML's, and is /dev/nvidia0 since."""
    assert [h.gpus for h in claimed((DRIVER, "gpu-0"), names=CROSSED)] == [(UUIDS[0], UUIDS[1])]


@each("claim", [(DRIVER, "gpu-9"), (DRIVER, "gpu-vfio-0"), (DRIVER, ""), ("", "x"), ("", "")])
def test_a_claim_that_is_not_understood_holds_all_gpus(claim: tuple[str, str]) -> None:
    (told,) = claimed(claim)
    assert told.gpus == ALL
    assert "holds all GPUs" in told.about


def test_claims_of_other_drivers_are_no_gpus() -> None:
    assert claimed(("compute-domain.nvidia.com", "channel-0"), ("dra.net", "eth0")) == ()


POD = Pod("ml", "train-0", ((GPU, UUIDS[0]),))


def test_a_pod_goes_by_its_uid_and_by_its_name_until_that_is_known() -> None:
    assert [h.holder for h in pod_holdings([POD], GPUS, LIFE, CROSSED)] == [f"pod:{UID}"]
    assert [h.holder for h in pod_holdings([POD], GPUS, BLIND, CROSSED)] == ["pod:ml/train-0"]
    stranger = Pod("ml", "new-0", POD.devices)
    assert [h.holder for h in pod_holdings([stranger], GPUS, LIFE, CROSSED)] == ["pod:ml/new-0"]


def test_a_pod_that_has_ended_holds_nothing_and_counts_as_alive_where_that_cannot_be_reported() -> None:
    done = Pod("ml", "done-0", POD.devices)
    assert pod_holdings([done], GPUS, LIFE, CROSSED) == ()
    assert [h.gpus for h in pod_holdings([done], GPUS, BLIND, CROSSED)] == [(UUIDS[0],)]


def test_two_living_pods_of_one_name_each_hold_what_the_name_was_given() -> None:
    """Neither can take the GPUs for its own alone."""
    life = PodLife({("ml", "train-0"): ("a", "b")}, frozenset({"a", "b"}))
    told = pod_holdings([POD], GPUS, life, CROSSED)
    assert [(h.holder, h.gpus) for h in told] == [("pod:a", (UUIDS[0],)), ("pod:b", (UUIDS[0],))]


def jobs(*gpus: tuple[int, ...] | None, names: GpuNames = STRAIGHT) -> tuple[Holding, ...]:
    return job_holdings([SlurmJob(str(n), "RUNNING", held) for n, held in enumerate(gpus)], GPUS, names)


def test_jobs_hold_the_gpus_of_their_numbers_and_those_without_any_hold_none() -> None:
    assert jobs((1, 3), (), (0,)) == (
        Holding("slurm:0", "Slurm job 0, running", (UUIDS[1], UUIDS[3])),
        Holding("slurm:2", "Slurm job 2, running", (UUIDS[0],)),
    )


def test_a_number_of_slurm_s_that_may_mean_two_gpus_holds_both() -> None:
    assert [h.gpus for h in jobs((1,), (2,), names=CROSSED)] == [(UUIDS[0], UUIDS[1]), (UUIDS[2],)]


@pytest.mark.parametrize("held", [None, (4,), (0, 17)])
def test_a_job_whose_gpus_are_not_known_holds_all_and_says_so(held: tuple[int, ...] | None) -> None:
    (told,) = jobs(held)
    assert told.gpus == ALL
    assert "holds all GPUs" in told.about


def test_without_the_numbers_of_device_files_a_job_holds_all_gpus() -> None:
    assert [h.gpus for h in jobs((0,), names=GpuNames({}))] == [ALL]


def test_numbers_of_device_files_are_nvml_s() -> None:
    node = Node("h200x8")
    gpus = node.nvml.gpus()
    assert not isinstance(gpus, Absent)
    assert read_minors(node.nvml, gpus) == {n: gpu.key for n, gpu in enumerate(gpus)}
    node.change("gpu3/MinorNumber()", "code", 15)
    assert set(read_minors(node.nvml, gpus)) == {0, 1, 2, 4, 5, 6, 7}


TEXTS = st.text() | st.sampled_from([*UUIDS, *MIGS, "0", "nvidia3", "gpu-1", "0000:1b:00.0", "0000:aa:00.0"])
PODS = st.builds(
    Pod,
    st.just("ml"),
    st.sampled_from(["train-0", "done-0", "new-0"]),
    st.lists(st.tuples(st.sampled_from([GPU, "nvidia.com/x", "rdma/hca"]), TEXTS), max_size=3).map(tuple),
    st.lists(st.tuples(st.sampled_from([DRIVER, "", "dra.net"]), TEXTS, TEXTS), max_size=2).map(tuple),
)
NAMES = st.builds(
    GpuNames,
    st.dictionaries(st.integers(0, 5), st.sampled_from([*UUIDS, "GPU-elsewhere"])),
    st.dictionaries(st.sampled_from(MIGS), st.sampled_from([*UUIDS, "GPU-elsewhere"])),
)


@given(st.lists(PODS, max_size=4), st.sampled_from([LIFE, BLIND]), NAMES)
def test_whatever_the_kubelet_says_the_holdings_are_gpus_of_this_node(
    pods: list[Pod], life: PodLife | Absent, names: GpuNames
) -> None:
    for holding in pod_holdings(pods, GPUS, life, names):
        assert holding.gpus
        assert [key for key in ALL if key in holding.gpus] == list(holding.gpus)
        assert holding.gpus == ALL or "holds all" not in holding.about


@given(st.lists(PODS, min_size=1, max_size=4), NAMES)
def test_knowing_less_never_takes_a_gpu_from_its_holder(pods: list[Pod], names: GpuNames) -> None:
    def held(life: PodLife | Absent, known: GpuNames) -> set[tuple[str, str]]:
        told = pod_holdings(pods, GPUS, life, known)
        return {(h.about.split()[1].rstrip(";"), key) for h in told for key in h.gpus}

    assert held(LIFE, names) <= held(BLIND, names) <= held(BLIND, GpuNames({}))


@given(st.lists(st.sets(st.integers(0, 5)).map(sorted).map(tuple), max_size=4), NAMES)
def test_a_job_never_holds_fewer_gpus_than_it_was_given_numbers(
    given_numbers: list[tuple[int, ...]], names: GpuNames
) -> None:
    told = {h.holder: h.gpus for h in jobs(*given_numbers, names=names)}
    for number, numbers in enumerate(given_numbers):
        held = told.get(f"slurm:{number}", ())
        assert len(held) >= min(len(numbers), len(ALL))
        assert {UUIDS[n] for n in numbers if n < len(UUIDS)} <= set(held)


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


@pytest.mark.parametrize("place", [
    "user.slice/user-1000.slice/user@1000.service", "system.slice/docker-x.scope", "lxc",
    f"kubepods.slice/kubepods-pod{UIDS[0]}.slice/cri-containerd-x.scope",
])  # fmt: skip
def test_a_name_that_a_user_can_choose_makes_no_pod_live(place: str) -> None:
    files = logs(tree(ROOTS[0], ("guaranteed", UIDS[0])), ("ml", "a", UIDS[0]), ("ml", "b", UIDS[1]))
    for name in (f"kubepods-pod{UIDS[1]}.slice", f"pod{UIDS[1]}"):
        files.texts[f"/sys/fs/cgroup/{place}/{name}/memory.max"] = "max"
    assert life(files).alive == {UIDS[0]}


def test_a_static_pod_goes_by_its_hash() -> None:
    files = logs(tree(ROOTS[0], ("burstable", STATIC)), ("kube-system", "etcd-node1", STATIC))
    assert life(files).uids("kube-system", "etcd-node1") == (STATIC,)


def test_a_pod_of_an_old_name_has_the_uid_that_lives() -> None:
    files = logs(
        tree(ROOTS[0], ("burstable", UIDS[1])), ("ml", "train-0", UIDS[0]), ("ml", "train-0", UIDS[1])
    )
    assert life(files).uids("ml", "train-0") == (UIDS[1],)


def test_two_pods_of_one_name_that_both_live_are_both_reported() -> None:
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
    """A pod of the same name that was made again waits for its volumes: a cgroup, and no log folder yet."""
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


POD_LISTS = st.lists(
    st.sampled_from([("ml", f"pod-{n % 3}", uid) for n, uid in enumerate(UIDS)]), unique=True
)


@given(POD_LISTS, st.sets(st.sampled_from(UIDS)), st.sampled_from(ROOTS), st.sampled_from(CLASSES))
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
