"""What a log says of GPUDirect and NVLS, line by line, from facts that were read."""

from types import SimpleNamespace
from typing import Any

from tests.rows import each
from wirewatch.core.account import Multicast
from wirewatch.core.types import Absent, Why
from wirewatch.nccl.lines import Chosen, GdrPath, Nic, Remark, Setting
from wirewatch.nccl.log import Seen
from wirewatch_lab.study.logsummary import SUBSYSTEMS, LogFeatures

NONE = Absent(Why.MISSING)
MANY = [f"Failed {number}" for number in range(9)]


def path(*, enabled: bool = False) -> Any:
    return SimpleNamespace(enabled=enabled, gpu=0, nic=1, distance=5, most=4)


def nic(network: str = "IB", *, direct: bool = False) -> Any:
    return SimpleNamespace(direct=direct, network=network, name="mlx5_0")


def remark(about: str, text: str) -> Any:
    return SimpleNamespace(about=about, text=text)


def setting(name: str, value: str = "0") -> Any:
    return SimpleNamespace(name=name, value=value)


def comm(*transports: str, channels: Any = NONE, nvls: int = 0) -> Any:
    connections = [
        SimpleNamespace(transport=one, source=0, destination=number)
        for number, one in enumerate(transports, 1)
    ]
    lines = {(one.source, one.destination, one.transport): 9 for one in connections}
    known = SimpleNamespace(connections=connections, channels=channels, nvls=range(nvls))
    return SimpleNamespace(comm=known, lines=lines, channels_line=8)


def features(*comms: Any, version: str = "", warnings: Any = None, **said: list[Any]) -> LogFeatures:
    kinds = {
        "paths": GdrPath,
        "nics": Nic,
        "remarks": Remark,
        "settings": Setting,
        "calls": Chosen,
        "offers": Multicast,
    }
    facts = {kinds[name]: [(one, ("n", 1), Seen(7, 1)) for one in ones] for name, ones in said.items()}
    log: Any = SimpleNamespace(
        said=lambda kind: facts.get(kind, []),
        versions={version: 1} if version else {},
        warnings=warnings or {},
    )
    return LogFeatures(log, comms)


@each(
    ("found", "state"),
    [
        (features(), "not known: no connection is logged"),
        (features(comm("P2P/CUMEM")), "no connection goes over a network"),
        (
            features(comm("NET/IB/0/GDRDMA", "P2P/CUMEM")),
            "in use on all 1 network connections that are logged",
        ),
        (
            features(comm("NET/IB/0/GDRDMA", "NET/IB/1")),
            "in use on 1 of 2 network connections that are logged; ",
        ),
        (
            features(comm("NET/IB/0", "NET/IB/1")),
            "not in use on any of 2 network connections that are logged; ",
        ),
    ],
)
def test_where_gpudirect_is_in_use(found: LogFeatures, state: str) -> None:
    answer = found.gpudirect()
    assert answer.state.startswith(state)
    assert [one.line for one in answer.quotes] == ([9] if state.startswith("in use on all") else [])


@each(
    ("transport", "version", "said", "why"),
    [
        ("NET/Socket/0", "", {}, "TCP sockets have none"),
        ("NET/IB/0", "", {}, f"why is not known: set {SUBSYSTEMS}"),
        ("NET/IB/0", "2.29.1", {"nics": [nic(direct=True)]}, f"why is not known: set {SUBSYSTEMS}"),
        ("NET/IB/0", "2.30.0", {}, f"why is not known: set {SUBSYSTEMS}"),
        ("NET/IB/0", "2.30.0", {"nics": [nic(direct=True)]}, "NCCL 2.30 and later do not log it"),
        ("NET/IB/0", "2.30.0", {"paths": [path()]}, "why, in the log's words:"),
    ],
)
def test_why_gpudirect_is_not_in_use(transport: str, version: str, said: dict[str, Any], why: str) -> None:
    assert features(comm(transport), version=version, **said).gpudirect().state.endswith(why)


@each(
    ("version", "said", "texts"),
    [
        ("", {"paths": [path()]}, ["GPU 0 to NIC 1: disabled, distance 5 is beyond 4"]),
        ("2.28.9", {"paths": [path()]}, ["GPU 0 to NIC 1: disabled, distance PXB (5) is beyond PIX (4)"]),
        ("", {"paths": [path(enabled=True)]}, []),
        ("", {"nics": [nic()]}, ["NET/IB: mlx5_0 cannot register GPU memory: no peermem, no DMA-BUF"]),
        ("", {"nics": [nic(direct=True)]}, []),
        ("", {"nics": [nic("Socket")]}, []),
        ("", {"remarks": [remark("gpudirect", "Failed to x")]}, ["Failed to x"]),
        ("", {"remarks": [remark("gpudirect", "x works")]}, []),
        ("", {"remarks": [remark("network", "Failed to x")]}, []),
        ("", {"settings": [setting("NCCL_IB_DISABLE", "1")]}, ["NCCL_IB_DISABLE=1"]),
        ("", {"settings": [setting("NCCL_DEBUG")]}, []),
        (
            "",
            {"remarks": [remark("gpudirect", text) for text in MANY]},
            [f"Failed {n}" for n in range(6)],
        ),
    ],
)
def test_what_stands_against_gpudirect(version: str, said: dict[str, Any], texts: list[str]) -> None:
    answer = features(comm("NET/IB/0"), version=version, **said).gpudirect()
    assert [one.text for one in answer.quotes] == texts


def call(algorithm: str) -> Any:
    return SimpleNamespace(algorithm=algorithm, op="all_reduce")


def offer(*, available: bool) -> Any:
    return SimpleNamespace(available=available, device=0)


FALLEN = {"Failed to bind NVLink SHARP x": Seen(3, 1)}
COUNTED, NO_CHANNELS = SimpleNamespace(nvls=16), SimpleNamespace(nvls=0)
UNKNOWN = SimpleNamespace(nvls=NONE)


@each(
    ("found", "state", "quotes"),
    [
        (features(), "not known: no line is about it", []),
        (features(calls=[call("nvls"), call("nvls_tree")]), "used by 2 calls", ["all_reduce ran on it"]),
        (features(comm(nvls=2), calls=[call("nvls")]), "used by 1 call; set up on 2 logged ranks",
         ["all_reduce ran on it"]),
        (features(calls=[call("ring")]), "not known: no line is about it", []),
        (features(comm(nvls=2)), "set up on 2 logged ranks", []),
        (features(comm(nvls=2), calls=[call("ring")]),
         "set up on 2 logged ranks, but no logged collective uses it", []),
        (features(warnings=FALLEN, offers=[offer(available=True)]), "given up after it was offered",
         ["device 0: multicast offered", *FALLEN]),
        (features(warnings={"x": Seen(3, 1)}), "not known: no line is about it", []),
        (features(settings=[setting("NCCL_NVLS_ENABLE")]), "switched off by NCCL_NVLS_ENABLE",
         ["NCCL_NVLS_ENABLE=0"]),
        (features(settings=[setting("NCCL_NVLS_ENABLE", "1")]), "not known: no line is about it",
         ["NCCL_NVLS_ENABLE=1"]),
        (features(offers=[offer(available=False), offer(available=True)]), "offered, not set up in this log",
         ["device 0: multicast not offered", "device 0: multicast offered"]),
        (features(offers=[offer(available=True)], calls=[call("ring")]),
         "offered, but no logged collective uses it", ["device 0: multicast offered"]),
        (features(offers=[offer(available=False)]), "not offered", ["device 0: multicast not offered"]),
        (features(comm(channels=NO_CHANNELS)), "not set up, and no line says why", ["0 channels for NVLS"]),
        (features(comm(channels=NO_CHANNELS), comm(channels=COUNTED)), "not known: no line is about it",
         ["0 channels for NVLS", "16 channels for NVLS"]),
        (features(comm(channels=UNKNOWN)), "not known: no line is about it", []),
    ],
)  # fmt: skip
def test_the_state_of_nvls(found: LogFeatures, state: str, quotes: list[str]) -> None:
    answer = found.nvls()
    assert answer.state == state
    assert [one.text for one in answer.quotes] == quotes
