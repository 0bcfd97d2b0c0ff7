"""GPUDirect RDMA: which NIC is near, and what is in the way."""

from dataclasses import replace

import pytest

from tests.node.collectors.drawn import PCI, Files, Gpus, Watched
from tests.node.core.test_pci import ACS, AER, space
from tests.rows import each
from wirewatch.collectors.gpudirect import read_checks
from wirewatch.collectors.gpudirect.judge import RULES, _bridges
from wirewatch.core.types import Absent, Expect, Health, Ok, Why

DEGRADED, UNKNOWN, FAILED = Health.DEGRADED, Health.UNKNOWN, Health.FAILED
GPUS = ("0000:03:00.0", "0001:03:00.0")
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: 12"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1  Release"


def config_space(acs: int) -> bytes:
    return space((0x100, AER), (0x148, ACS), control=acs)


def node_files() -> Files:
    """Two switches on two sockets, each with a GPU and a NIC below it."""
    files = Files()
    for socket in (0, 1):
        root = f"pci000{socket}:00/000{socket}:00:01.0"
        upstream = f"{root}/000{socket}:01:00.0"
        numa = str(socket)
        files.device(f"000{socket}:00:01.0", f"pci000{socket}:00", numa)
        files.device(f"000{socket}:01:00.0", root, numa)
        for port in (0, 1):
            files.device(f"000{socket}:02:0{port}.0", upstream, numa)
            files.texts[f"{PCI}/000{socket}:02:0{port}.0/config"] = config_space(acs=0x0001)
        files.device(GPUS[socket], f"{upstream}/000{socket}:02:00.0", numa, "nvidia")
        files.nic(f"mlx5_{socket}", f"000{socket}:04:00.0", f"{upstream}/000{socket}:02:01.0", numa)
    files.texts |= {
        "/sys/module/nvidia_peermem/version": "580.159.04",
        "/proc/driver/nvidia/version": OPEN,
        "/proc/sys/kernel/osrelease": "5.15.0-1",
        "/sys/class/infiniband_verbs/uverbs0/dev": "231:192",
        "/sys/module/mlx5_core/version": "24.10-0.7.0",
        "/sys/devices/system/node/online": "0-1",
    }
    return files


def watched(*, gpudirect: bool | None = None) -> Watched:
    return Watched("gpudirect", node_files(), Gpus(GPUS), Expect(gpudirect=gpudirect))


def state(node: Watched, check: str) -> str:
    states = ("passed", "failed", "unknown")
    told = [s for s in states if node.series("gpudirect_check_state", check=check, state=s) == [1]]
    return told[0] if told else "not applicable"


def test_a_healthy_node_passes_every_check_and_names_the_nearest_nic() -> None:
    node = watched(gpudirect=True)
    assert node.poll(3) == ()
    for check in ("rdma_stack", "peer_memory", "acs", "iommu", "nccl_conf"):
        assert state(node, check) == "passed", check
    assert node.series("gpu_nic_path_info", gpu="0", device="mlx5_0", path="PIX", nearest="true") == [1]
    assert node.series("gpu_nic_path_info", gpu="0", device="mlx5_1", path="SYS", nearest="false") == [1]
    assert node.series("gpudirect_info", peer_memory="both likely", kernel_module="open") == [1]


@each(
    ("driver", "kernel", "peermem", "expected", "how"),
    [
        (OPEN, "5.15.0", True, "passed", "both likely"),
        (OPEN, "6.8.0", False, "passed", "dma-buf likely"),
        (CLOSED, "6.8.0", True, "passed", "peermem"),
        (CLOSED, "6.8.0", False, "failed", "none"),
        (OPEN, "5.4.0", False, "failed", "none"),
        ("something else", "6.8.0", False, "unknown", "unknown"),
    ],
)
def test_peermem_or_dma_buf_is_enough(
    driver: str,
    kernel: str,
    peermem: bool,  # noqa: FBT001
    expected: str,
    how: str,
) -> None:
    node = watched()
    node.files.texts |= {"/proc/driver/nvidia/version": driver, "/proc/sys/kernel/osrelease": kernel}
    if not peermem:
        del node.files.texts["/sys/module/nvidia_peermem/version"]
    node.poll(2)
    assert state(node, "peer_memory") == expected
    assert node.series("gpudirect_info", peer_memory=how) == [1]
    assert node.rules() == ({("gpudirect.peer_memory", "node"): DEGRADED} if expected == "failed" else {})


def test_what_must_work_and_does_not_is_failed_and_what_cannot_be_reported_is_unknown() -> None:
    node = watched(gpudirect=True)
    del node.files.texts["/sys/module/nvidia_peermem/version"]
    node.files.texts["/proc/driver/nvidia/version"] = CLOSED
    node.poll()
    assert node.rules() == {}
    node.poll()
    assert node.rules() == {("gpudirect.peer_memory", "node"): FAILED}
    node.files.texts["/proc/driver/nvidia/version"] = Absent(Why.DENIED, "no", 13)
    node.poll()
    assert node.rules() == {("gpudirect.peer_memory", "node"): FAILED, ("gpudirect.blind", "node"): UNKNOWN}


def test_gpudirect_that_is_expected_without_any_nic_is_failed() -> None:
    node = Watched("gpudirect", Files(), Gpus(GPUS), Expect(gpudirect=True))
    node.poll()
    assert node.rules() == {("gpudirect.missing", "node"): DEGRADED}
    node.poll()
    assert node.rules() == {("gpudirect.missing", "node"): FAILED}
    without = Watched("gpudirect", Files(), Gpus(GPUS))
    assert without.poll() == ()
    assert without.component.health is None


def test_a_bridge_that_redirects_is_named_with_the_pairs_behind_it() -> None:
    node = watched()
    node.files.texts[f"{PCI}/0000:02:01.0/config"] = config_space(acs=0x001D)
    node.poll(2)
    assert node.rules() == {("gpudirect.acs", "0000:02:01.0"): DEGRADED}
    evidence = node.component.findings[0].evidence
    assert "ReqRedir CmpltRedir UpstreamFwd" in evidence
    assert "GPU 0 to mlx5_0" in evidence
    assert "GPU 1" not in evidence


def test_bridges_that_are_on_no_path_are_not_judged() -> None:
    node = watched()
    node.files.texts[f"{PCI}/0000:00:01.0/config"] = config_space(acs=0x001D)
    assert node.poll(3) == ()
    assert state(node, "acs") == "passed"


def test_without_privilege_acs_cannot_be_reported_and_what_was_seen_before_holds() -> None:
    node = watched()
    for socket in (0, 1):
        for port in (0, 1):
            at = f"{PCI}/000{socket}:02:0{port}.0/config"
            whole = node.files.texts[at]
            assert isinstance(whole, bytes)
            node.files.texts[at] = whole[:64]
    assert node.poll(3) == ()
    assert state(node, "acs") == "unknown"
    assert node.series("gpudirect_check_needs_info", check="acs", privilege="CAP_SYS_ADMIN") == [1]
    seen = watched()
    seen.files.texts[f"{PCI}/0000:02:01.0/config"] = config_space(acs=0x0004)
    seen.poll(2)
    seen.files.texts[f"{PCI}/0000:02:01.0/config"] = config_space(acs=0x0004)[:64]
    seen.poll(3, every=1000.0)
    assert seen.rules() == {("gpudirect.acs", "0000:02:01.0"): DEGRADED}


def test_bridges_are_looked_at_every_ten_minutes_only() -> None:
    node = watched()
    node.poll(20, every=60.0)
    assert node.files.opened.count(f"{PCI}/0000:02:01.0/config") == 2


def test_an_iommu_that_translates_is_reported_unless_the_operator_says_that_it_must() -> None:
    node = watched()
    for number, address in enumerate((*GPUS, "0000:04:00.0", "0001:04:00.0")):
        node.files.links[f"{PCI}/{address}/iommu_group"] = f"/sys/kernel/iommu_groups/{number}"
        node.files.texts[f"/sys/kernel/iommu_groups/{number}/type"] = "identity"
    assert node.poll(2) == ()
    node.files.texts["/sys/kernel/iommu_groups/0/type"] = "DMA-FQ"
    node.poll(2)
    assert node.rules() == {("gpudirect.iommu", "node"): DEGRADED}
    assert node.component.findings[0].evidence == f"translates for {GPUS[0]}"
    node.policy(judge_iommu=False)
    assert node.poll() == ()
    assert state(node, "iommu") == "failed"


@each(
    ("conf", "words"),
    [
        ("NCCL_NET_GDR_LEVEL=LOC", "switches GPUDirect RDMA off"),
        ("NCCL_NET_GDR_LEVEL=0", "switches GPUDirect RDMA off"),
        ("NCCL_NET_GDR_LEVEL=far", "is not a level"),
        ("NCCL_IB_DISABLE=1", "switches InfiniBand and RoCE off"),
        ("NCCL_TOPO_FILE=/etc/topo.xml", "/etc/topo.xml does not exist"),
    ],
)
def test_settings_of_the_host_that_take_gpudirect_from_every_job_are_reported(conf: str, words: str) -> None:
    node = watched()
    node.files.texts["/etc/nccl.conf"] = f"# of this host\nNCCL_DEBUG=WARN\n{conf}\n"
    node.poll(2)
    assert node.rules() == {("gpudirect.nccl_conf", "node"): DEGRADED}
    assert words in node.component.findings[0].evidence


def test_settings_that_do_no_harm_are_none_and_lines_that_are_none_are_counted() -> None:
    node = watched()
    node.files.texts["/etc/nccl.conf"] = (
        "NCCL_NET_GDR_LEVEL=PIX\nNCCL_TOPO_FILE=/etc/topo.xml\nwhat is this\n"
    )
    node.files.links["/etc/topo.xml"] = "/etc/topo.xml"
    assert node.poll(2) == ()
    assert node.series("nccl_conf_lines_unparsed") == [1]


def test_a_level_nearer_than_the_nearest_nic_is_reported() -> None:
    node = watched()
    node.files.forget("/sys/class/infiniband/mlx5_0")
    node.files.texts["/etc/nccl.conf"] = "NCCL_NET_GDR_LEVEL=PXB"
    node.poll(2)
    assert "nearest NIC of GPU 0 (SYS)" in node.component.findings[0].evidence


def test_a_virtual_machine_that_hides_its_bridges_is_not_judged_by_them() -> None:
    files = Files()
    files.device(GPUS[0], "pci0000:00", "-1", "nvidia")
    files.nic("mlx5_0", "0000:00:09.0", "pci0000:00", "-1")
    files.texts |= {"/proc/driver/nvidia/version": OPEN, "/proc/sys/kernel/osrelease": "6.1.0"}
    files.texts["/sys/class/infiniband_verbs/uverbs0/dev"] = "231:192"
    node = Watched("gpudirect", files, Gpus(GPUS[:1]))
    assert node.poll(3) == ()
    assert state(node, "acs") == state(node, "iommu") == "not applicable"
    assert node.series("gpu_nic_path_info", path="unknown", nearest="false") == [1]


def test_bridges_are_still_judged_while_a_place_cannot_be_read() -> None:
    node = watched()
    node.files.texts[f"{PCI}/0000:02:01.0/config"] = config_space(acs=0x001D)
    node.poll(2)
    for address in GPUS:
        node.files.links[f"{PCI}/{address}"] = Absent(Why.TIMEOUT, "no answer", 110)
    node.poll(3)
    assert node.rules() == {("gpudirect.acs", "0000:02:01.0"): DEGRADED}


def test_what_cannot_be_reported_is_one_finding_however_many_reasons_there_are() -> None:
    node = watched(gpudirect=True)
    denied = Absent(Why.DENIED, "no", 13)
    node.files.texts |= {"/sys/class/infiniband_verbs": denied, "/proc/driver/nvidia/version": denied}
    del node.files.texts["/sys/module/nvidia_peermem/version"]
    node.poll(2)
    assert [f.rule for f in node.component.findings] == ["gpudirect.blind"]


def cascade() -> Watched:
    """A GPU behind two switches, and a NIC behind the first of them: PXB."""
    files, root = node_files(), "pci0000:00/0000:00:01.0"
    files.forget("/sys/class/infiniband/")
    files.forget(PCI)
    behind = (root, "0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0")
    files.device("0000:00:01.0", "pci0000:00")
    for depth, bridge in enumerate(behind[1:], 1):
        files.device(bridge, "/".join(behind[:depth]))
    files.device("0000:02:01.0", "/".join(behind[:2]))
    for bridge in ("0000:02:00.0", "0000:02:01.0", "0000:03:00.0", "0000:04:00.0"):
        files.texts[f"{PCI}/{bridge}/config"] = config_space(acs=0x0001)
    files.device("0000:05:00.0", "/".join(behind), "0", "nvidia")
    files.nic("mlx5_0", "0000:06:00.0", f"{'/'.join(behind[:2])}/0000:02:01.0")
    return Watched("gpudirect", files, Gpus(("0000:05:00.0",)), Expect(gpudirect=True))


def test_bridges_behind_several_switches_are_judged_and_keep_no_job_away() -> None:
    node = cascade()
    assert node.poll(2) == ()
    assert node.series("gpu_nic_path_info", path="PXB", nearest="true") == [1]
    node.files.texts[f"{PCI}/0000:04:00.0/config"] = config_space(acs=0x0004)
    node.poll(4, every=1000.0)
    assert node.rules() == {("gpudirect.acs", "0000:04:00.0"): DEGRADED}


@pytest.mark.parametrize(("level", "told"), [("PIX", True), ("PXB", False), ("PHB", False)])
def test_a_level_one_step_nearer_than_the_nearest_nic_is_reported(level: str, told: bool) -> None:  # noqa: FBT001
    node = cascade()
    node.files.texts["/etc/nccl.conf"] = f"NCCL_NET_GDR_LEVEL={level}"
    node.poll(2)
    assert (("gpudirect.nccl_conf", "node") in node.rules()) is told


def test_a_version_without_a_device_is_no_rdma_stack() -> None:
    node = watched(gpudirect=True)
    node.files.forget("/sys/class/infiniband_verbs")
    node.files.texts["/sys/class/infiniband_verbs/abi_version"] = "6"
    node.poll(2)
    assert node.rules() == {("gpudirect.rdma_stack", "node"): FAILED}


BRIDGE, OTHER = "0000:02:01.0", "0001:02:01.0"


def barred(node: Watched, *bridges: str) -> None:
    """Without the privilege, only the first 64 bytes of a bridge's registers can be read."""
    for bridge in bridges:
        whole = node.files.texts[f"{PCI}/{bridge}/config"]
        assert isinstance(whole, bytes)
        node.files.texts[f"{PCI}/{bridge}/config"] = whole[:64]


def test_a_bridge_that_redirects_is_reported_beside_one_that_cannot_be_read() -> None:
    node = watched()
    node.files.texts[f"{PCI}/{BRIDGE}/config"] = config_space(acs=0x0004)
    barred(node, OTHER)
    node.poll(2)
    assert state(node, "acs") == "failed"
    assert node.rules() == {("gpudirect.acs", BRIDGE): DEGRADED}


def test_one_bridge_that_cannot_be_read_leaves_the_others_unproven() -> None:
    node = watched()
    barred(node, OTHER)
    assert node.poll(2) == ()
    assert state(node, "acs") == "unknown"


def test_an_iommu_that_translates_for_one_device_is_reported_beside_one_that_cannot_be_read() -> None:
    node = watched()
    denied = Absent(Why.DENIED, "no", 13)
    kinds: dict[str, str | Absent] = {GPUS[0]: "DMA", GPUS[1]: denied}
    for number, (address, kind) in enumerate(kinds.items()):
        node.files.links[f"{PCI}/{address}/iommu_group"] = f"/sys/kernel/iommu_groups/{number}"
        node.files.texts[f"/sys/kernel/iommu_groups/{number}/type"] = kind
    node.poll(2)
    assert node.rules() == {("gpudirect.iommu", "node"): DEGRADED}
    node.files.texts["/sys/kernel/iommu_groups/0/type"] = "identity"
    node.poll()
    assert state(node, "iommu") == "unknown"


def test_a_group_that_cannot_be_followed_is_not_a_missing_one() -> None:
    node = watched()
    node.files.links[f"{PCI}/{GPUS[0]}/iommu_group"] = Absent(Why.DENIED, "no", 13)
    node.poll()
    assert state(node, "iommu") == "unknown"
    assert node.series("gpudirect_check_needs_info", check="iommu", privilege="root") == [1]


def test_an_iommu_is_asked_for_on_x86_only() -> None:
    node = watched()
    node.host.told["Machine"] = "aarch64"
    node.poll()
    assert state(node, "iommu") == "not applicable"
    assert state(node, "acs") == "passed"


@each(
    ("kernel", "how"),
    [
        ("5.11.9", "none"),
        ("5.12.0", "dma-buf likely"),
        ("6.0.1", "dma-buf likely"),
        ("", "unknown"),
        ("rolling", "unknown"),
        (Absent(Why.DENIED, "no", 13), "unknown"),
    ],
)
def test_dma_buf_takes_a_kernel_that_is_known_to_have_it(kernel: str | Absent, how: str) -> None:
    """Before, a kernel of a version that is not understood had none."""
    node = watched()
    del node.files.texts["/sys/module/nvidia_peermem/version"]
    node.files.texts["/proc/sys/kernel/osrelease"] = kernel
    node.poll(2)
    assert node.series("gpudirect_info", peer_memory=how) == [1]
    assert state(node, "peer_memory") == {"none": "failed", "unknown": "unknown"}.get(how, "passed")


@pytest.mark.parametrize(
    ("peermem", "driver", "how"),
    [
        (Absent(Why.DENIED, "no", 13), OPEN, "dma-buf likely"),
        (Absent(Why.DENIED, "no", 13), CLOSED, "unknown"),
        ("580", Absent(Why.DENIED, "no", 13), "peermem"),
    ],
)
def test_one_way_to_the_memory_that_is_proven_is_enough(
    peermem: str | Absent, driver: str | Absent, how: str
) -> None:
    node = watched()
    node.files.texts |= {"/sys/module/nvidia_peermem/version": peermem, "/proc/driver/nvidia/version": driver}
    node.poll()
    assert node.series("gpudirect_info", peer_memory=how) == [1]


def test_only_what_makes_gpudirect_impossible_can_be_failed() -> None:
    grave = {rule.name for rule in RULES if FAILED in rule.healths}
    assert grave == {"gpudirect.rdma_stack", "gpudirect.peer_memory", "gpudirect.missing"}
    node = watched(gpudirect=True)
    node.files.texts["/etc/nccl.conf"] = "NCCL_IB_DISABLE=1"
    node.poll(3)
    assert node.rules() == {("gpudirect.nccl_conf", "node"): DEGRADED}


@each(
    ("line", "link", "answer"),
    [
        ("NCCL_IB_DISABLE=0", None, "passed"),
        ("NCCL_IB_DISABLE=", None, "passed"),
        ("NCCL_TOPO_FILE=/x", Absent(Why.DENIED, "no", 13), "unknown"),
        ("NCCL_IB_DISABLE=1\nNCCL_TOPO_FILE=/x", Absent(Why.DENIED, "no", 13), "failed"),
        ("NCCL_TOPO_FILE=", None, "passed"),
    ],
)
def test_each_setting_of_the_host_is_judged_by_itself(line: str, link: Absent | None, answer: str) -> None:
    node = watched()
    node.files.texts["/etc/nccl.conf"] = line
    if link is not None:
        node.files.links["/x"] = link
    node.poll()
    assert state(node, "nccl_conf") == answer


def test_settings_that_cannot_be_read_are_not_known() -> None:
    node = watched()
    node.files.texts["/etc/nccl.conf"] = Absent(Why.DENIED, "no", 13)
    assert node.poll(2) == ()
    assert state(node, "nccl_conf") == "unknown"
    assert node.series("nccl_conf_lines_unparsed") == []


def test_an_answer_that_is_unknown_holds_what_failed_before_and_confirms_nothing() -> None:
    node = watched()
    node.files.texts["/etc/nccl.conf"] = "NCCL_IB_DISABLE=1"
    node.poll()
    node.files.texts["/etc/nccl.conf"] = Absent(Why.TIMEOUT, "no answer", 110)
    assert node.poll(5) == ()
    node.files.texts["/etc/nccl.conf"] = "NCCL_IB_DISABLE=1"
    node.poll()
    assert node.rules() == {("gpudirect.nccl_conf", "node"): DEGRADED}
    node.files.texts["/etc/nccl.conf"] = Absent(Why.TIMEOUT, "no answer", 110)
    node.poll()
    assert "NCCL_IB_DISABLE=1" in node.component.findings[0].evidence


def test_cards_that_gpus_do_not_use_are_left_out() -> None:
    node = watched()
    node.options(exclude=("mlx5_1", "other*"))
    node.poll()
    assert node.series("gpu_nic_path_info", device="mlx5_1") == []


def test_no_rdma_device_is_nothing_to_check() -> None:
    node = watched()
    node.files.forget("/sys/class/infiniband/")
    assert node.poll(2) == ()
    assert node.component.samples == ()
    node = Watched("gpudirect", node_files(), Gpus(()), Expect(gpudirect=True))
    node.poll(2)
    assert node.rules() == {("gpudirect.missing", "node"): FAILED}
    assert node.component.samples == ()
    unexpected = Watched("gpudirect", node_files(), Gpus(()))
    assert unexpected.poll() == ()
    assert unexpected.component.health is None


def test_rdma_devices_that_cannot_be_listed_are_not_none() -> None:
    node = watched()
    node.files.texts["/sys/class/infiniband"] = Absent(Why.DENIED, "no", 13)
    node.poll()
    assert node.rules() == {("gpudirect.blind", "node"): UNKNOWN}
    assert isinstance(read_checks(node.hardware), Absent)
    found = read_checks(watched().hardware)
    assert not isinstance(found, Absent)
    assert {check.name for check in found} >= {"acs", "nccl_conf"}


def test_bridges_are_judged_beside_a_gpu_whose_place_was_never_read_and_once_it_is() -> None:
    node = watched()
    link = node.files.links[f"{PCI}/{GPUS[0]}"]
    node.files.links[f"{PCI}/{GPUS[0]}"] = Absent(Why.TIMEOUT, "no answer", 110)
    node.files.texts[f"{PCI}/{BRIDGE}/config"] = config_space(acs=0x0004)
    node.poll()
    assert state(node, "acs") == "passed", "of the other GPU"
    node.files.links[f"{PCI}/{GPUS[0]}"] = link
    node.poll(2)
    assert node.rules() == {("gpudirect.acs", BRIDGE): DEGRADED}


def test_a_card_that_is_elsewhere_now_is_read_there() -> None:
    node = watched()
    node.poll()
    assert node.series("gpu_nic_path_info", gpu="0", device="mlx5_0", path="PIX") == [1]
    node.files.nic("mlx5_0", "0001:05:00.0", "pci0001:00/0001:00:01.0/0001:01:00.0/0001:02:01.0", "1")
    node.poll()
    assert node.series("gpu_nic_path_info", gpu="0", device="mlx5_0", path="PIX") == []


def test_a_bridge_on_no_nearest_path_is_named_without_pairs() -> None:
    node = watched()
    node.poll()
    assert isinstance(node.component.outcome, Ok)
    reading = replace(node.component.outcome.value, gpus=())
    bits: dict[str, tuple[str, ...] | Absent] = {BRIDGE: ("ReqRedir",)}
    (finding,) = _bridges(bits, reading, DEGRADED)
    assert finding.evidence == "ReqRedir set: peer-to-peer packets take a detour through the root complex"


@each(
    ("files", "answer", "privilege"),
    [
        ({"uverbs0/dev": "231:192", "abi_version": "6"}, "passed", None),
        ({"abi_version": "6"}, "failed", None),
        ({}, "failed", None),
        (Absent(Why.DENIED, "no", 13), "unknown", "root"),
        (Absent(Why.TIMEOUT, "no answer", 110), "unknown", "none"),
    ],
)
def test_an_rdma_stack_has_a_device_for_programs(
    files: dict[str, str] | Absent, answer: str, privilege: str | None
) -> None:
    verbs = "/sys/class/infiniband_verbs"
    node = watched()
    node.files.forget(verbs)
    if isinstance(files, Absent):
        node.files.texts[verbs] = files
    else:
        node.files.texts |= {f"{verbs}/{name}": text for name, text in files.items()}
    node.poll()
    assert state(node, "rdma_stack") == answer
    if privilege is not None:
        assert node.series("gpudirect_check_needs_info", check="rdma_stack", privilege=privilege) == [1]
