"""What is wrong with settings: what fails, slows, does nothing, does not exist; and what is not known."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.advice.settings import HUNDRED, LOCAL, MAPPED, MIB, gids, node, port, swept
from tests.rows import each
from tests.support import EPOCH
from wirewatch.collectors.gpudirect import CheckState, GpudirectCheck
from wirewatch.core.topology import WireKind
from wirewatch.core.types import Absent, Health, Why
from wirewatch_lab.advice.described import described
from wirewatch_lab.advice.settings.advice import NotRead, Places, check
from wirewatch_lab.advice.settings.finding import SettingFinding
from wirewatch_lab.advice.settings.gids import V1, V2
from wirewatch_lab.advice.settings.measured import MeasuredSetting, measured_settings
from wirewatch_lab.advice.settings.node import VIRTUAL_TOPOLOGY, NcclNode
from wirewatch_lab.advice.settings.sources import of_conf, of_environ
from wirewatch_lab.study.curve import Configuration
from wirewatch_lab.study.spread import Regime

IB = (port("mlx5_0", ("PIX", "SYS")), port("mlx5_3", ("SYS", "PIX")))
STORAGE = port("mlx5_8", ("NODE", "SYS"), "Ethernet", HUNDRED)
ROCE = tuple(replace(one, layer="Ethernet") for one in IB)
UNKNOWN = NcclNode()
NEW, OLD = (2, 28, 9), (2, 20, 5)


def found(
    settings: dict[str, str], where: NcclNode = UNKNOWN, measured: tuple[MeasuredSetting, ...] = ()
) -> tuple[dict[str, list[SettingFinding]], Health]:
    """What is found of each name, and the worst."""
    data = b"\0".join(f"{name}={value}".encode() for name, value in settings.items())
    document, worst = check(Places("a job", (of_environ(data, "environ"),)), where, measured, EPOCH)
    by_name: dict[str, list[SettingFinding]] = {}
    for one in document.findings:
        by_name.setdefault(one.name, []).append(one)
    return by_name, worst


def told(name: str, value: str, where: NcclNode = UNKNOWN, **others: str) -> list[tuple[str, str]]:
    """Trouble and words of one setting among others."""
    by_name, _ = found({name: value, **others}, where)
    return [(one.trouble.value, one.text) for one in by_name.get(name, [])]


def only(name: str, value: str, where: NcclNode = UNKNOWN, **others: str) -> tuple[str, str]:
    (one,) = told(name, value, where, **others)
    return one


@each(
    ("settings", "health"),
    [
        ({}, Health.OK), ({"PATH": "/bin", "TORCH_NCCL_BLOCKING_WAIT": "1"}, Health.OK),
        ({"NCCL_DEBUG": "INFO"}, Health.OK), ({"NCCL_MAX_NCHANNELS": "32"}, Health.OK),
        ({"NCCL_MAX_CTAS": "4"}, Health.DEGRADED), ({"NCCL_BUFSIZE": "1"}, Health.DEGRADED),
        ({"NCCL_ALGO": "auto"}, Health.FAILED), ({"NCCL_IB_GID_INDEX": "3"}, Health.UNKNOWN),
        ({"NCCL_ALGO": "auto", "NCCL_IB_GID_INDEX": "3", "NCCL_MAX_CTAS": "4"}, Health.FAILED),
    ],
)  # fmt: skip
def test_the_worst_of_all_is_the_verdict(settings: dict[str, str], health: Health) -> None:
    assert found(settings)[1] is health


def test_what_cannot_be_read_is_not_known_whatever_else_is_fine() -> None:
    places = Places("process 7", (), (NotRead("/proc/7/environ", "EACCES"),))
    document, worst = check(places, UNKNOWN, (), EPOCH)
    assert (document.health, worst) == ("unknown", Health.UNKNOWN)


@pytest.mark.parametrize("name", ["NCCL_ALGO", "NCCL_PROTO"])
@pytest.mark.parametrize("where", [UNKNOWN, replace(UNKNOWN, nccl=NEW), replace(UNKNOWN, nccl=(2, 24, 3))])
def test_auto_fails_init_from_2_24_on(name: str, where: NcclNode) -> None:
    trouble, words = only(name, "auto", where)
    assert trouble == "fails"
    assert words.startswith("init fails: 'auto' is not one of ")


def test_auto_is_passed_over_before() -> None:
    (first, *_) = told("NCCL_ALGO", "auto", replace(UNKNOWN, nccl=(2, 23, 4)))
    assert first == (
        "read otherwise",
        "NCCL 2.23.4 passes over auto; what is left may be nothing. Leave it unset for NCCL to choose.",
    )


def test_a_list_without_ring_fails_what_has_ring_alone() -> None:
    trouble, words = only("NCCL_ALGO", "Tree", replace(UNKNOWN, nccl=NEW))
    assert (trouble, words) == (
        "fails", "nothing is left for Broadcast, Reduce, AllGather, ReduceScatter: calling it fails",
    )  # fmt: skip
    assert only("NCCL_PROTO", ",")[1].startswith("nothing is left for every collective")


def test_what_slows_has_its_figure() -> None:
    (slow, old) = told("NCCL_MAX_NCHANNELS", "4")
    assert slow[0] == "slows"
    assert "4 measured 98 GB/s" in slow[1]
    assert "where 340 GB/s are healthy" in slow[1]
    assert old == ("deprecated", "still read; NCCL_MAX_CTAS replaces it since 2.17")


def test_simple_alone_slows_small_messages_and_ll_alone_large_ones() -> None:
    """A public guide advises Simple for inference."""
    for where in (UNKNOWN, node(*IB)):
        assert only("NCCL_PROTO", "Simple", where)[1].startswith("small messages go without LL")
        assert only("NCCL_PROTO", "^LL", where)[1].startswith("small messages go without LL")
        assert only("NCCL_PROTO", "LL", where)[1].startswith(
            "not the Simple protocol; on 4 H200 LL alone measured"
        )
        assert told("NCCL_PROTO", "^LL128", where) == told("NCCL_PROTO", "LL,Simple", where) == []


def test_ring_leaves_nvls_nothing_to_do() -> None:
    assert only("NCCL_NVLS_ENABLE", "1", NCCL_ALGO="Ring") == (
        "does nothing", "unused: NCCL_ALGO=Ring leaves it no collective",
    )  # fmt: skip
    assert told("NCCL_NVLS_ENABLE", "2", NCCL_ALGO="^tree") == []
    assert "2, the default" in only("NCCL_NVLS_ENABLE", "1")[1]


def test_nvls_by_force_fails_where_its_resources_lack() -> None:
    assert only("NCCL_NVLS_ENABLE", "1", node(multicast=False))[0] == "fails"
    assert only("NCCL_NVLS_ENABLE", "1", node(kind=WireKind.PCIE)) == (
        "does nothing", "no NVSwitch joins the GPUs here",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (node(), "no RDMA port is here: sockets, or a plugin such as GPUDirect-TCPX, read no NCCL_IB_*"),
        (node(replace(STORAGE, layer="Unspecified")), "aws-ofi-nccl drives the network, and reads none of"),
        (node(replace(STORAGE, state="down")), "no InfiniBand or RoCE port is active here"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_TIMEOUT", "NCCL_IB_TC"])
def test_settings_of_infiniband_do_nothing_without_it(where: NcclNode, words: str, name: str) -> None:
    trouble, text = only(name, "3", where)
    assert (trouble, text.startswith(words)) == ("does nothing", True)


@pytest.mark.parametrize("others", [{"NCCL_NET": "AWS Libfabric"}, {"NCCL_IB_DISABLE": "1"}])
def test_nor_do_they_where_another_network_was_chosen(others: dict[str, str]) -> None:
    assert only("NCCL_IB_TIMEOUT", "22", node(*IB), **others)[0] == "does nothing"


def test_a_prefix_that_takes_storage_ports_is_told_the_exact_list() -> None:
    trouble, words = only("NCCL_IB_HCA", "mlx5", node(*IB, STORAGE))
    assert trouble == "slows"
    assert "mlx5_8:1 (Ethernet, 100 Gb/s = 12.5 GB/s) too" in words
    assert words.endswith("=mlx5_0,mlx5_3 takes those of the GPUs")
    assert told("NCCL_IB_HCA", "=mlx5_0,mlx5_3", node(*IB, STORAGE)) == []
    assert only("NCCL_IB_HCA", "mlx5") == (
        "not known", "what it does depends on the RDMA ports, and no machine was read",
    )  # fmt: skip


def test_a_list_that_misses_ports_or_names_none() -> None:
    assert "it leaves out mlx5_3:1" in only("NCCL_IB_HCA", "=mlx5_0", node(*IB))[1]
    assert "it matches none of" in only("NCCL_IB_HCA", "=ib9", node(*IB))[1]
    assert only("NCCL_IB_HCA", "=mlx5_0,mlx5_3,mlx5_9", node(*IB)) == (
        "read otherwise", "no device here is called mlx5_9",
    )  # fmt: skip


def test_a_gid_index_is_held_against_that_gids_type() -> None:
    roce = node(*ROCE)
    assert told("NCCL_IB_GID_INDEX", "3", roce) == []
    assert only("NCCL_IB_GID_INDEX", "2", roce) == (
        "read otherwise",
        ("mlx5_0:1, mlx5_3:1: this GID is RoCE v1, which no router passes and no DSCP marks; "
         "index 3 is RoCE v2 of an IPv4 address"),
    )  # fmt: skip
    assert "link-local" in only("NCCL_IB_GID_INDEX", "1", roce)[1]
    assert only("NCCL_IB_GID_INDEX", "7", roce)[0] == "fails"
    assert only("NCCL_IB_GID_INDEX", "3", node(*IB))[0] == "does nothing"
    assert told("NCCL_IB_GID_INDEX", "-1", roce) == []


def test_a_gid_index_differs_from_port_to_port_and_may_be_unread() -> None:
    one = node(*ROCE, tables={"mlx5_3": gids((LOCAL, V1), (LOCAL, V2))})
    assert only("NCCL_IB_GID_INDEX", "3", one) == (
        "fails", "mlx5_3:1: the port has no GID at this index: connections cannot be made",
    )  # fmt: skip
    barred = node(*ROCE, tables={"mlx5_0": Absent(Why.DENIED, "EACCES")})
    assert only("NCCL_IB_GID_INDEX", "3", barred)[0] == "not known"
    assert told("NCCL_IB_GID_INDEX", "3", one, NCCL_IB_HCA="=mlx5_0") == []


def test_an_old_nccl_on_roce_must_be_told_an_index() -> None:
    by_name, worst = found({}, node(*ROCE, nccl=OLD))
    assert worst is Health.DEGRADED
    assert by_name["NCCL_IB_GID_INDEX"][0].text.startswith("NCCL 2.20.5 takes GID 0 (")
    assert found({}, node(*ROCE, nccl=NEW))[1] is Health.OK


def test_levels_of_gpudirect() -> None:
    assert only("NCCL_NET_GDR_LEVEL", "5", node(*IB))[1].startswith("the old number for SYS")
    assert only("NCCL_NET_GDR_LEVEL", "LOC", node(*IB)) == ("slows", "it switches GPUDirect RDMA off")
    far = node(port("mlx5_0", ("PXB", "PIX")))
    assert "GPU 0 (PXB)" in only("NCCL_NET_GDR_LEVEL", "PIX", far)[1]
    assert told("NCCL_NET_GDR_LEVEL", "PXB", far) == []
    barred = replace(far, gpudirect=(GpudirectCheck("peer_memory", CheckState.FAILED, "no module"),))
    assert only("NCCL_NET_GDR_LEVEL", "PXB", barred)[0] == "does nothing"


def test_a_traffic_class_does_nothing_on_infiniband_nor_cross_nic_on_one_nic() -> None:
    assert only("NCCL_IB_TC", "160", node(*IB))[0] == "does nothing"
    assert told("NCCL_IB_TC", "160", node(*ROCE)) == []
    assert only("NCCL_CROSS_NIC", "1", node(port("mlx5_0")))[0] == "does nothing"
    assert told("NCCL_CROSS_NIC", "2", node(*IB)) == []


def test_what_slows_other_nodes_does_nothing_where_nvlink_joins_all() -> None:
    for name, value in (("NCCL_SHM_DISABLE", "1"), ("NCCL_P2P_LEVEL", "NVL"), ("NCCL_P2P_LEVEL", "1")):
        idle = "does nothing", "NVLink joins all GPUs here with each other, so it changes nothing"
        assert idle in told(name, value, node())
        for where in (node(kind=WireKind.PCIE), UNKNOWN):
            assert "slows" in {trouble for trouble, _ in told(name, value, where)}
    assert only("NCCL_P2P_LEVEL", "LOC", node())[0] == "slows"
    assert only("NCCL_NVLS_ENABLE", "0", node(*IB))[0] == "slows"
    assert only("NCCL_NVLS_ENABLE", "0", node(kind=WireKind.PCIE))[0] == "does nothing"
    assert only("NCCL_NET", "Socket", node())[0] == "does nothing"
    assert only("NCCL_NET", "socket", node(*IB))[0] == "slows"


@pytest.mark.parametrize("value", ["IBX", "Sockets", "infiniband"])
def test_a_network_that_nobody_knows_may_fail_init(value: str) -> None:
    assert only("NCCL_NET", value, node(*IB)) == (
        "not known", "init fails unless a network plugin names itself so; NCCL's own are IB and Socket",
    )  # fmt: skip
    for known in ("IB", "ib", "AWS Libfabric", "GPUDirectTCPX_v7", "IBext_v8"):
        assert told("NCCL_NET", known, node(*IB)) == []


def test_gpus_before_hopper_have_no_nvls_to_lose() -> None:
    (machine,) = described("8xA100+8xHDR").conditions
    a100 = NcclNode(conditions=machine, ports=machine.network)
    why = "NVLS takes NVSwitch of Hopper or later, and these are Ampere"
    assert only("NCCL_NVLS_ENABLE", "0", a100) == ("does nothing", why)
    assert only("NCCL_ALGO", "Ring", a100) == (
        "slows", f"between nodes small messages go without Tree; {why}",
    )  # fmt: skip
    assert told("NCCL_ALGO", "Ring,Tree", a100) == []
    assert only("NCCL_ALGO", "allreduce:tree", a100)[0] == "slows"
    assert "366 of 460 to 480" in only("NCCL_ALGO", "Ring,Tree", node())[1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("\ufeffNCCL_ALGO", "with a byte order mark: write NCCL_ALGO=VALUE"),
        ("ENV NCCL_ALGO", "with its spaces: write NCCL_ALGO=VALUE"),
        ("NCCL_ALGO ", "with its spaces: write NCCL_ALGO=VALUE"),
    ],
)
def test_a_name_with_something_before_it_sets_nothing(name: str, words: str) -> None:
    trouble, text = only(name, "Ring")
    assert trouble == "does nothing"
    assert words in text


def test_a_list_that_no_interface_matches_fails_init() -> None:
    here = replace(node(), interfaces=("lo", "ens3", "ens30"))
    assert only("NCCL_SOCKET_IFNAME", "eth", here) == (
        "fails", "init fails: no interface here matches (lo, ens3, ens30)",
    )  # fmt: skip
    assert only("NCCL_SOCKET_IFNAME", "=ens", here)[0] == "fails"
    for value in ("ens", "=ens30", "^lo", "^docker", "eth0,ens3"):
        assert told("NCCL_SOCKET_IFNAME", value, here) == []
    assert told("NCCL_SOCKET_IFNAME", "eth", node()) == []


def test_names_that_do_not_exist() -> None:
    assert only("NCCL_BUFSIZE", "1") == ("does not exist", "NCCL reads no such name: is NCCL_BUFFSIZE meant?")
    assert only("nccl_debug", "1")[0] == "does not exist"
    assert only("NCCL_FOO", "1")[0] == "does not exist"
    assert only("NCCL_FOO", "1", replace(UNKNOWN, nccl=(2, 40, 1)))[0] == "not known"
    assert told("NCCL_TESTS_SPLIT", "1") == told("NCCL_VERSION", "2.28.9") == []


def test_names_of_other_versions() -> None:
    assert only("NCCL_IB_CUDA_SUPPORT", "1") == (
        "does nothing", "no NCCL after 2.3.7 reads it; NCCL_NET_GDR_LEVEL does its work",
    )  # fmt: skip
    assert only("NCCL_RAS_ENABLE", "0", replace(UNKNOWN, nccl=OLD)) == (
        "does nothing", "NCCL 2.20.5 does not read it; 2.24 is the first that does",
    )  # fmt: skip
    assert only("NCCL_MAX_NRINGS", "64", NCCL_MAX_NCHANNELS="64") == (
        "does nothing", "NCCL_MAX_NCHANNELS is set, and counts instead",
    )  # fmt: skip


def test_a_topology_file_is_for_machines_that_hide_their_pci_tree() -> None:
    assert only("NCCL_TOPO_FILE", "/t.xml")[0] == "not known"
    assert only("NCCL_TOPO_FILE", "/t.xml", node(*IB)) == (
        "not known",
        "NCCL believes this file, and can read the PCI tree here by itself: measure with and without it",
    )
    assert told("NCCL_TOPO_FILE", "/t.xml", node(port("mlx5_0", ("", "")))) == []
    assert told("NCCL_TOPO_FILE", VIRTUAL_TOPOLOGY, node(*IB)) == []


def test_a_sweep_of_this_node_speaks_louder_than_the_list() -> None:
    few = Configuration(4, settings=(("NCCL_MAX_CTAS", "16"),))
    fine = measured_settings([swept((few, {}))])
    slow = measured_settings([swept((few, {0: 0.0, 64 * MIB: 0.5}))])
    assert found({"NCCL_MAX_CTAS": "16"}, node(), fine)[1] is Health.OK
    small = tuple(one for one in fine if one.regime is Regime.LATENCY)
    assert found({"NCCL_MAX_CTAS": "16"}, node(), small)[1] is Health.DEGRADED
    (one,) = found({"NCCL_MAX_CTAS": "16"}, node(), slow)[0]["NCCL_MAX_CTAS"]
    assert one.text.startswith("measured here 49.8% more time")
    assert one.source == "a sweep"


def test_files_give_way_to_the_environment_and_later_lines_to_earlier() -> None:
    environment = of_environ(b"NCCL_DEBUG=INFO", "environ")
    conf = of_conf("NCCL_DEBUG=WARN\nNCCL_CROSS_NIC = 1\nexport NCCL_ALGO=Ring\nNCCL_PROTO\n", "nccl.conf")
    twice = of_conf("NCCL_IB_SL=1\nNCCL_IB_SL=2\n", "/etc/nccl.conf")
    document, worst = check(Places("a job", (environment, conf, twice)), UNKNOWN, (), EPOCH)
    assert worst is Health.DEGRADED
    assert document.settings["NCCL_DEBUG"] == "INFO"
    assert [(one.name, one.trouble.value, one.text) for one in document.findings] == [
        ("NCCL_CROSS_NIC ", "does nothing",
         "the name is 'NCCL_CROSS_NIC ', with its spaces: write NCCL_CROSS_NIC=VALUE and nothing else"),
        ("export NCCL_ALGO", "does nothing",
         "the name is 'export NCCL_ALGO', with its spaces: write NCCL_ALGO=VALUE and nothing else"),
        ("NCCL_DEBUG", "does nothing", "NCCL_DEBUG=INFO is read first, and counts"),
        ("NCCL_PROTO", "does nothing", "a line without = sets nothing"),
        ("NCCL_IB_SL", "does nothing",
         "it stands twice with different values: the first counts, and in a docker env file the last"),
    ]  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from(["NCCL_ALGO", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_X", "X"]), st.text()
    )
)
def test_any_settings_have_a_verdict_that_fits_what_is_found(settings: dict[str, str]) -> None:
    data = b"\0".join(f"{name}={value}".encode("utf-8", "replace") for name, value in settings.items())
    document, worst = check(Places("a job", (of_environ(data, "environ"),)), node(*IB, STORAGE), (), EPOCH)
    assert worst is max((one.trouble.health for one in document.findings), default=Health.OK)


@each(
    ("name", "value", "others", "found_"),
    [
        ("NCCL_IB_TC", "160", {}, []),
        ("NCCL_IB_TC", "0", {}, []),
        ("NCCL_IB_DISABLE", "1", {}, ["not known"]),
        ("NCCL_CROSS_NIC", "1", {}, []),
        ("NCCL_NET_GDR_LEVEL", "LOC", {}, []),
        ("NCCL_NET", "socket", {}, ["not known"]),
        ("NCCL_IB_HCA", "mlx5", {}, ["not known"]),
        ("NCCL_IB_GID_INDEX", "3", {}, ["not known"]),
        ("NCCL_IB_TIMEOUT", "22", {}, []),
        ("NCCL_IB_TIMEOUT", "22", {"NCCL_IB_DISABLE": "0"}, []),
        ("NCCL_IB_TIMEOUT", "22", {"NCCL_NET": "IB"}, []),
    ],
)
def test_where_the_ports_are_not_known_nothing_is_said_of_what_depends_on_them(
    name: str, value: str, others: dict[str, str], found_: list[str]
) -> None:
    """A traffic class was said to do nothing on InfiniBand, of which nobody knew that it is there."""
    assert [trouble for trouble, _ in told(name, value, UNKNOWN, **others)] == found_


@each(
    ("name", "value", "where", "others", "found_"),
    [
        ("NCCL_IB_DISABLE", "1", node(*IB), {}, ["slows"]),
        ("NCCL_IB_DISABLE", "0", node(*IB), {}, []),
        ("NCCL_IB_DISABLE", "1", node(), {}, ["does nothing"]),
        ("NCCL_IB_TC", "160", node(*IB), {}, ["does nothing"]),
        ("NCCL_IB_TC", "0", node(*IB), {}, []),
        ("NCCL_IB_TC", "160", node(*IB, *ROCE[:1]), {"NCCL_IB_HCA": "=mlx5_0"}, []),
        ("NCCL_CROSS_NIC", "1", node(port("mlx5_0")), {}, ["does nothing"]),
        ("NCCL_CROSS_NIC", "1", node(*(replace(one, card="c") for one in IB)), {}, ["does nothing"]),
        ("NCCL_CROSS_NIC", "1", node(*(replace(one, card="") for one in IB)), {}, []),
        ("NCCL_NET_GDR_LEVEL", "PHB", node(port("mlx5_0", ("PIX", "SYS"))), {}, ["slows"]),
        ("NCCL_NET_GDR_LEVEL", "SYS", node(port("mlx5_0", ("PIX", "SYS"))), {}, []),
        ("NCCL_NET_GDR_LEVEL", "far", node(*IB), {}, ["read otherwise"]),
        ("NCCL_NET_GDR_LEVEL", "PIX", node(), {}, []),
        ("NCCL_NET", "socket", node(), {}, ["does nothing"]),
        ("NCCL_IB_HCA", "^mlx5_8", node(*IB, STORAGE), {}, []),
        ("NCCL_IB_HCA", "=mlx5_0,mlx5_3", node(*IB, STORAGE), {}, []),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_3", node(*IB, STORAGE), {}, []),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_3,nic", node(*IB, STORAGE), {}, ["read otherwise"]),
        ("NCCL_IB_HCA", "=mlx5_0,mlx5_3,mlx", node(*IB, STORAGE), {}, ["read otherwise"]),
        ("NCCL_IB_HCA", "=mlx5_0,mlx5_8", node(*IB, STORAGE), {}, ["slows", "slows"]),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_3", replace(NcclNode(), ports=IB), {}, []),
        ("NCCL_IB_GID_INDEX", "0", node(*IB), {}, ["does nothing"]),
        ("NCCL_TOPO_FILE", "/t.xml", node(), {}, ["not known"]),
        ("NCCL_TOPO_FILE", "/t.xml", replace(NcclNode(), ports=IB), {}, ["not known"]),
        ("NCCL_TOPO_FILE", "/t.xml", NcclNode(conditions=node().conditions), {}, ["not known"]),
        ("NCCL_TOPO_FILE", "~/t.xml", node(port("mlx5_0", ("", ""))), {}, ["read otherwise"]),
        ("NCCL_NVLS_ENABLE", "1", UNKNOWN, {}, ["does nothing"]),
        ("NCCL_NVLS_ENABLE", "2", node(multicast=False), {}, []),
        ("NCCL_NVLS_ENABLE", "1", UNKNOWN, {"NCCL_ALGO": "nonsense"}, ["does nothing"]),
        ("NCCL_NVLS_ENABLE", "2", UNKNOWN, {"NCCL_ALGO": "Ring"}, ["does nothing"]),
        ("NCCL_NVLS_ENABLE", "2", UNKNOWN, {"NCCL_ALGO": "allreduce:Ring"}, []),
        ("NCCL_NVLS_ENABLE", "", UNKNOWN, {}, []),
        ("NCCL_P2P_LEVEL", "0", node(), {}, ["read otherwise", "slows"]),
        ("NCCL_MIN_NRINGS", "64", UNKNOWN, {}, ["deprecated"]),
        ("NCCL_MAX_NCHANNELS", "64", UNKNOWN, {"NCCL_MAX_CTAS": "64"}, ["deprecated"]),
        ("NCCL_MAX_NCHANNELS", "64", replace(UNKNOWN, nccl=(2, 16, 5)), {}, []),
        ("NCCL_CHECK_POINTERS", "1", replace(UNKNOWN, nccl=(2, 28, 9)), {}, []),
        ("MY_NCCL_THING", "1", UNKNOWN, {}, []),
        ("NCLC_DEBUG", "1", UNKNOWN, {}, ["does not exist"]),
        ("THING", "1", UNKNOWN, {}, []),
    ],
)  # fmt: skip
def test_what_is_found_of_a_setting_on_a_node(
    name: str, value: str, where: NcclNode, others: dict[str, str], found_: list[str]
) -> None:
    assert sorted(trouble for trouble, _ in told(name, value, where, **others)) == sorted(found_)


def test_a_gid_index_of_which_no_table_was_read_is_not_known() -> None:
    bare = replace(node(*ROCE), gids={})
    assert only("NCCL_IB_GID_INDEX", "3", bare) == ("not known", "mlx5_0:1, mlx5_3:1: its GIDs were not read")
    typeless = node(*ROCE, tables={one.device: gids((LOCAL, "")) for one in ROCE})
    assert only("NCCL_IB_GID_INDEX", "0", typeless)[1].startswith(
        "mlx5_0:1, mlx5_3:1: the type of this GID is not known (type not known, link-local fe80::1)"
    )


def test_an_old_nccl_whose_right_index_is_0_or_none_is_told_nothing() -> None:
    first = {one.device: gids((MAPPED, V2)) for one in ROCE}
    none = {one.device: gids((LOCAL, V1)) for one in ROCE}
    for tables in (first, none):
        assert found({}, node(*ROCE, tables=tables, nccl=OLD))[0] == {}
    assert found({"NCCL_IB_GID_INDEX": "3"}, node(*ROCE, nccl=OLD))[0] == {}
    assert found({}, node(*ROCE))[0] == {}
    assert found({}, node(*IB, nccl=OLD))[0] == {}


def test_the_worst_trouble_comes_first() -> None:
    settings = {
        "NCCL_MAX_NCHANNELS": "64",
        "NCCL_FOO": "1",
        "NCCL_IB_HCA": "a",
        "NCCL_MAX_CTAS": "4",
        "NCCL_ALGO": "auto",
    }
    by_name, _ = found(settings)
    order = [one.trouble.value for some in by_name.values() for one in some]
    assert order == ["fails", "not known", "slows", "does not exist", "deprecated"]


def test_without_a_gpu_that_is_known_every_active_port_counts() -> None:
    """Nothing says then which ports are for GPUs."""
    bare = NcclNode(ports=ROCE, gids=node(*ROCE).gids)
    assert only("NCCL_IB_GID_INDEX", "2", bare)[0] == "read otherwise"
    assert only("NCCL_IB_GID_INDEX", "0", bare)[0] == "read otherwise"


@each(
    ("name", "value", "nccl", "text"),
    [
        ("NCCL_PROTO", "foo", NEW, "init fails: 'foo' is not one of LL, LL128, Simple."),
        ("NCCL_PROTO", "'auto'", NEW, ""),
        ("NCCL_PROTO", "Auto", None, "; NCCL before 2.24 passes over it. Leave it unset for NCCL to choose."),
        ("NCCL_PROTO", "foo", OLD, "NCCL 2.20.5 passes over foo; what is left may be nothing."),
        ("NCCL_ALGO", "Tree", None, "calling it fails; NCCL before 2.24 takes Ring"),
    ],
)
def test_a_list_that_nccl_refuses_in_whole_words(
    name: str, value: str, nccl: tuple[int, int, int] | None, text: str
) -> None:
    assert told(name, value, replace(UNKNOWN, nccl=nccl))[0][1].endswith(text)
