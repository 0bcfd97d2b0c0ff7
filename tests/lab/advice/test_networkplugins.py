"""Settings by the network between nodes: what its plugin sets, asks for or checks, and the question of it."""

from dataclasses import replace

from tests.lab.advice.settings import HUNDRED, node, port
from tests.rows import each
from tests.support import EPOCH
from wirewatch.busbw.profiles import PROFILES, NetworkKind
from wirewatch.core.topology import WireKind
from wirewatch.core.types import Absent, Health
from wirewatch.nccl.variables import reader, variable
from wirewatch_lab.advice.described import described, network_of
from wirewatch_lab.advice.settings.advice import NcclCheckDocument, Places, advise, check
from wirewatch_lab.advice.settings.measured import JobPurpose
from wirewatch_lab.advice.settings.node import QUESTION, NcclNode, described_node
from wirewatch_lab.advice.settings.plugins import plugin_of, plugins, wanted
from wirewatch_lab.advice.settings.sources import of_environ, of_file

IB = (port("mlx5_0"), port("mlx5_1"))
ROCE = tuple(replace(one, layer="Ethernet") for one in IB)
EFA = node(port("efa_0", ("PIX", "PIX"), "Unspecified", HUNDRED))
TCPXO = {
    "NCCL_FASTRAK_IFNAME": "eth1", "NCCL_CROSS_NIC": "0", "NCCL_ALGO": "Ring,Tree",
    "NCCL_PROTO": "Simple,LL128",
    "NCCL_BUFFSIZE": "8388608", "NCCL_NET_GDR_LEVEL": "PIX", "NCCL_P2P_NET_CHUNKSIZE": "524288",
    "NCCL_P2P_PCI_CHUNKSIZE": "524288", "NCCL_P2P_NVL_CHUNKSIZE": "1048576", "NCCL_MIN_NCHANNELS": "4",
    "NCCL_NVLS_ENABLE": "0",
}  # fmt: skip
"""An A3 Mega as its users published it: an aborting checker stands behind these values."""


def on(network: str) -> NcclNode:
    return described_node(described(f"8xH100+{network}"), None)


def checked(where: NcclNode, settings: dict[str, str]) -> tuple[NcclCheckDocument, Health]:
    data = b"\0".join(f"{name}={value}".encode() for name, value in settings.items())
    return check(Places("a job", (of_environ(data, "environ"),)), where, (), EPOCH)


@each(
    ("where", "settings", "troubles"),
    [
        (on("a3-mega"), TCPXO, []),
        (NcclNode(), TCPXO, []),
        (on("a3-mega"), {**TCPXO, "NCCL_PROTO": "LL128,Simple"}, []),
        (on("a3-mega"), {**TCPXO, "NCCL_PROTO": "Simple"}, []),
        (on("a3-mega"), {**TCPXO, "NCCL_PROTO": "LL,LL128,Simple"}, ["not known"]),
        (on("a3-mega"), {**TCPXO, "NCCL_PROTO": "nonsense"}, ["fails"]),
        (on("a3-mega"), {**TCPXO, "NCCL_BUFFSIZE": "2097152"}, ["not known"]),
        (on("a3-mega"), {**TCPXO, "NCCL_CROSS_NIC": ""}, ["not known"]),
        (on("a3-mega"), {}, ["not known"]),
        (on("a3-mega"), {**TCPXO, "NCCL_IB_TIMEOUT": "22"}, ["does nothing"]),
        (on("a3-mega"), {**TCPXO, "NCCL_NET": "Socket"}, ["slows"]),
        # A machine with InfiniBand is not that of another provider, whatever was copied.
        (node(*IB), {"NCCL_FASTRAK_IFNAME": "eth1", "NCCL_PROTO": "Simple"}, ["slows"]),
        (on("a3-high"), {"NCCL_PROTO": "Simple", "NCCL_ALGO": "Ring", "NCCL_MAX_NCHANNELS": "8"}, []),
        (on("a3-high"), {"NCCL_PROTO": "LL"}, ["slows"]),
        (on("p5"), {"NCCL_TOPO_FILE": "/opt/amazon/ofi-nccl/share/aws-ofi-nccl/xml/p5.48xl-topo.xml"}, []),
        (EFA, {"NCCL_TOPO_FILE": "/opt/amazon/ofi-nccl/share/aws-ofi-nccl/xml/p5.48xl-topo.xml"}, []),
        (EFA, {"NCCL_PROTO": "simple", "NCCL_BUFFSIZE": "8388608"}, []),
        (EFA, {"NCCL_PROTO": "LL128"}, ["not known"]),
        (EFA, {"NCCL_NET": "AWS Libfabric"}, []),
        (NcclNode(), {"FI_PROVIDER": "efa", "NCCL_PROTO": "simple"}, []),
        (NcclNode(), {"OFI_NCCL_NIC_DUP_CONNS": "1", "NCCL_PROTO": "simple"}, []),
        (node(*ROCE), {"NCCL_NET": "gIB", "NCCL_IB_TC": "52", "NCCL_IB_QPS_PER_CONNECTION": "4"}, []),
        (node(*ROCE), {"NCCL_NET": "IBext_v8", "NCCL_IB_TC": "52", "NCCL_IB_TIMEOUT": "22"}, []),
        (node(*ROCE), {"NCCL_NET": "UCX", "NCCL_IB_TC": "52"}, ["does nothing"]),
        (on("nd-h100-v5"), {"NCCL_TOPO_FILE": "/opt/microsoft/ndv5-topo.xml"}, []),
        (NcclNode(), {"NCCL_TOPO_FILE": "/opt/microsoft/ndv5-topo.xml"}, []),
        (on("dgx-h100"), {"NCCL_PROTO": "Simple"}, ["slows"]),
        (on("2x100G"), {"NCCL_PROTO": "Simple"}, ["slows"]),
        # The network is the question then.
        (NcclNode(), {"NCCL_PROTO": "Simple"}, ["not known"]),
        (node(), {"NCCL_ALGO": "Ring"}, ["not known"]),
        (node(), {"NCCL_MAX_CTAS": "4"}, ["slows"]),
        (NcclNode(), {"FI_PROVIDER": "efa", "NCCL_NET": "FasTrak", "NCCL_ALGO": "Ring"}, ["not known"]),
        (node(), {"NCCL_NET": "Socket"}, ["does nothing"]),
        (NcclNode(network=network_of("2x100G:sockets")), {"NCCL_NET": "Socket"}, ["does nothing"]),
        (NcclNode(), {"NCCL_NET": "Socket"}, ["not known"]),
        (NcclNode(), {"NCCL_TOPO_FILE": "/proc/self/fd/12", "NCCL_PROTO": "simple"}, []),
        (described_node(described("1xH100+1xNDR"), None), {"NCCL_P2P_DISABLE": "1"}, ["does nothing"]),
        # Nothing was measured of these.
        (node(*IB), {"NCCL_BUFFSIZE": "2097152"}, ["not known"]),
        (node(*IB), {"NCCL_BUFFSIZE": "65536"}, ["slows"]),
        (node(*IB), {"NCCL_BUFFSIZE": "65537"}, ["not known"]),
        (node(*IB), {"NCCL_BUFFSIZE": "4194304"}, []),
        (node(*IB), {"NCCL_NTHREADS": "256"}, ["not known"]),
        (node(*IB), {"NCCL_MAX_CTAS": "16"}, ["slows"]),
        (node(*IB), {"NCCL_MAX_CTAS": "17"}, ["not known"]),
        (node(*IB), {"NCCL_MIN_CTAS": "64"}, ["not known"]),
        (node(*IB, kind=WireKind.PCIE), {"NCCL_MAX_CTAS": "4"}, ["not known"]),
    ],
)  # fmt: skip
def test_what_a_network_makes_of_settings(
    where: NcclNode, settings: dict[str, str], troubles: list[str]
) -> None:
    document, _ = checked(where, settings)
    assert [one.trouble.value for one in document.findings] == troubles


def test_a_published_script_of_an_a3_mega_is_as_its_plugin_wants_it() -> None:
    text = "".join(f"export {name}={value}\n" for name, value in TCPXO.items())
    source = of_file(text.encode(), "env.sh")
    assert not isinstance(source, Absent)
    document, worst = check(Places("env.sh", (source,)), NcclNode(), (), EPOCH)
    assert (worst, document.network, len(document.as_wanted)) == (Health.OK, "GPUDirect-TCPXO", 10)


def test_the_question_stands_with_what_it_is_about() -> None:
    document, worst = checked(NcclNode(), {"NCCL_PROTO": "Simple"})
    assert worst is Health.UNKNOWN
    assert document.findings[0].text == (
        "small messages go without LL, which NCCL takes for them (up to 2 MiB on 8 H200); but aws-ofi-nccl "
        f"and GPUDirect-TCPXO and GPUDirect-TCPX want this value: {QUESTION}"
    )
    assert QUESTION not in advise(node(*IB), (), JobPurpose.TRAINING, EPOCH).remark
    assert QUESTION in advise(node(), (), JobPurpose.TRAINING, EPOCH).remark


@each(
    ("network", "kind", "remark"),
    [
        ("p5", "aws-ofi-nccl", ""),
        ("a3-mega", "GPUDirect-TCPXO", "nccl-env-profile.sh"),
        ("a3-ultra", "gIB", "set_nccl_env.sh"),
        ("nd-h100-v5", "Azure's image", "/etc/nccl.conf"),
        ("dgx-h100", "dgx-h100", ""),
        ("2x100G", "RoCE", ""),
    ],
)
def test_advice_leaves_to_a_plugin_what_is_its_own(network: str, kind: str, remark: str) -> None:
    made = advise(on(network), (), JobPurpose.TRAINING, EPOCH)
    assert (made.network, remark in made.remark, bool(made.remark)) == (kind, True, bool(remark))
    assert [one.name for one in made.variables if one.value is not None] == ["NCCL_DEBUG"]
    names = [one.name for one in made.variables]
    assert len(names) == len(set(names))
    named = network_of(network)
    plugin = plugin_of(named)
    assert set(plugin.wants if plugin else ()) <= set(names)


def test_only_the_values_that_a_plugin_asks_for_are_its_own() -> None:
    settings = {"NCCL_PROTO": "LL", "NCCL_TOPO_FILE": "/opt/aws-ofi-nccl/p5.xml", "NCCL_P2P_DISABLE": "1"}
    assert wanted(network_of("p5"), settings) == {"NCCL_TOPO_FILE"}
    assert wanted(network_of("dgx-h100"), settings) == frozenset()


def test_plugins_are_of_networks_that_are_known_and_set_what_nccl_reads() -> None:
    known = {one.name for one in PROFILES}
    kinds = {one.value for one in NetworkKind}
    for one in plugins():
        assert set(one.profiles) <= known
        assert set(one.kinds) <= kinds
        assert one.profiles or one.kinds
        assert set(one.needed) <= set(one.wants)
        assert one.source.startswith("https://")
        assert bool(one.file) == (one.how != "sets")
        assert all(variable(name) or reader(name) for name in one.wants)
    assert [plugin_of(one) for one in PROFILES if one.kind is NetworkKind.NVLINK] == [None]
