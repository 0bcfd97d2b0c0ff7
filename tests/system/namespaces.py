"""Nodes of a Slurm cluster in network namespaces, each with a wire of its own that can be slowed by tc."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.system.cluster import Cluster, tool

INTERFACE = "eth0"
BURST = "64kb"


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


class Wires:
    """A bridge, and a namespace for each node; `rate` in bits per second holds each way of each node.

    A node sends through tbf at its own end and receives through tbf at the bridge's.
    """

    def __init__(self, nodes: Sequence[str], rate: float) -> None:
        self.nodes = nodes
        self.rate = rate
        self._tag = f"{os.getpid() % 10000:04d}"
        self.bridge = f"wwb{self._tag}"
        self.subnet = f"10.{77 + os.getpid() % 100}.{os.getpid() % 250}"
        self.controller = f"{self.subnet}.254"

    def namespace(self, node: str) -> str:
        return f"ww{self._tag}-{node}"

    def address(self, node: str) -> str:
        return f"{self.subnet}.{1 + self.nodes.index(node)}"

    def within(self, node: str) -> tuple[str, ...]:
        """What runs a command in a node's namespace.

        `ip netns exec` would put a /sys without cgroups in its place, without which slurmd does not start.
        """
        return (tool("nsenter"), f"--net=/run/netns/{self.namespace(node)}")

    def port(self, node: str) -> str:
        """The bridge's end of a node's wire."""
        return f"wwp{self._tag}{self.nodes.index(node)}"

    def __enter__(self) -> Self:
        ip = tool("ip")
        try:
            _run(ip, "link", "add", self.bridge, "type", "bridge")
            _run(ip, "addr", "add", f"{self.controller}/24", "dev", self.bridge)
            _run(ip, "link", "set", self.bridge, "up")
            for node in self.nodes:
                self._add(ip, node)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _add(self, ip: str, node: str) -> None:
        space, port, inner = self.namespace(node), self.port(node), f"{self.port(node)}i"
        _run(ip, "netns", "add", space)
        _run(ip, "link", "add", port, "type", "veth", "peer", "name", inner)
        _run(ip, "link", "set", inner, "netns", space, "name", INTERFACE)
        _run(ip, "link", "set", port, "master", self.bridge, "up")
        for command in (
            ("addr", "add", f"{self.address(node)}/24", "dev", INTERFACE),
            ("link", "set", INTERFACE, "up"),
            ("link", "set", "lo", "up"),
        ):
            _run(ip, "-n", space, *command)
        self.sends(node, self.rate)
        self.receives(node, self.rate)

    def sends(self, node: str, rate: float) -> None:
        """Slow what a node sends to this rate."""
        _run(*self.within(node), tool("tc"), "qdisc", "replace", "dev", INTERFACE, "root", *_bucket(rate))

    def receives(self, node: str, rate: float) -> None:
        """Slow what arrives at a node to this rate."""
        _run(tool("tc"), "qdisc", "replace", "dev", self.port(node), "root", *_bucket(rate))

    def sends_to(self, node: str, other: str, rate: float) -> None:
        """Slow what a node sends to one other node: a class of its own for that address.

        By htb, which has classes; not every kernel has prio.
        """
        tc = (*self.within(node), tool("tc"))
        _run(*tc, "qdisc", "replace", "dev", INTERFACE, "root", "handle", "1:", "htb", "default", "10")
        for number, held in ((10, self.rate), (20, rate)):
            _run(*tc, "class", "add", "dev", INTERFACE, "parent", "1:", "classid", f"1:{number}", "htb",
                 "rate", f"{held:.0f}bit", "burst", BURST, "cburst", BURST)  # fmt: skip
        _run(*tc, "filter", "add", "dev", INTERFACE, "parent", "1:", "protocol", "ip", "prio", "1", "u32",
             "match", "ip", "dst", f"{self.address(other)}/32", "flowid", "1:20")  # fmt: skip

    def __exit__(self, *_: object) -> None:
        ip = tool("ip")
        for command in (
            *(("netns", "del", self.namespace(node)) for node in self.nodes),
            *(("link", "del", self.port(node)) for node in self.nodes),
            ("link", "del", self.bridge),
        ):
            subprocess.run([ip, *command], check=False, capture_output=True, timeout=20)


class HashedWires(Wires):
    """Leafs between which the kernel hashes flows onto `uplinks`, each as fast as the wire of a node.

    A leaf is a namespace with a bridge for its nodes and a route to each other leaf over all uplinks (ECMP).
    `leafs`: the leaf of each node. The controller reaches each leaf by a wire that nothing holds.
    """

    def __init__(self, leafs: Mapping[str, str], rate: float, uplinks: int) -> None:
        super().__init__(tuple(leafs), rate)
        self._leafs, self._uplinks = leafs, uplinks
        self._names = tuple(dict.fromkeys(leafs.values()))
        assert len(self._names) == 2, "uplinks lead from one leaf to the other"
        self.subnet = f"10.{77 + os.getpid() % 100}"
        self.controller = f"{self.subnet}.250.1"

    def address(self, node: str) -> str:
        return f"{self.subnet}.{self._place(node)}.{1 + self.nodes.index(node)}"

    def leaf(self, node: str) -> tuple[str, ...]:
        """What runs a command in the namespace of a node's leaf."""
        return (tool("nsenter"), f"--net=/run/netns/{self.namespace(self._leafs[node])}")

    def receives(self, node: str, rate: float) -> None:
        _run(*self.leaf(node), tool("tc"), "qdisc", "replace", "dev", self.port(node), "root", *_bucket(rate))

    def _place(self, node: str) -> int:
        return self._names.index(self._leafs[node])

    def __enter__(self) -> Self:
        ip = tool("ip")
        try:
            for place, name in enumerate(self._names):
                self._add_leaf(ip, place, self.namespace(name))
            for number in range(self._uplinks):
                self._add_uplink(ip, number)
            for place, name in enumerate(self._names):
                hops = [word for n in range(self._uplinks)
                        for word in ("nexthop", "via", f"{self.subnet}.{100 + n}.{2 - place}")]  # fmt: skip
                _run(ip, "-n", self.namespace(name), "route", "add", f"{self.subnet}.{1 - place}.0/24", *hops)
            for node in self.nodes:
                self._add(ip, node)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _add_leaf(self, ip: str, place: int, space: str) -> None:
        outside, inside = f"{self.bridge}{place}", f"{self.bridge}{place}i"
        _run(ip, "netns", "add", space)
        _run(ip, "link", "add", outside, "type", "veth", "peer", "name", inside)
        _run(ip, "link", "set", inside, "netns", space)
        _run(ip, "addr", "add", f"{self.controller}/32", "dev", outside)
        _run(ip, "link", "set", outside, "up")
        within = (tool("nsenter"), f"--net=/run/netns/{space}")
        for setting in ("ip_forward=1", "fib_multipath_hash_policy=1"):
            _run(*within, tool("sysctl"), "-q", "-w", f"net.ipv4.{setting}")
        gateway = f"{self.subnet}.{place}.254"
        for command in (
            ("link", "set", "lo", "up"),
            ("link", "set", inside, "up"),
            ("link", "add", "leaf", "type", "bridge"),
            ("addr", "add", f"{gateway}/24", "dev", "leaf"),
            ("link", "set", "leaf", "up"),
            ("route", "add", f"{self.controller}/32", "dev", inside, "src", gateway),
        ):
            _run(ip, "-n", space, *command)
        _run(ip, "route", "add", f"{gateway}/32", "dev", outside, "src", self.controller)
        _run(
            ip, "route", "add", f"{self.subnet}.{place}.0/24", "via", gateway, "dev", outside,
            "src", self.controller,
        )  # fmt: skip

    def _add_uplink(self, ip: str, number: int) -> None:
        one, other = (self.namespace(name) for name in self._names)
        _run(ip, "link", "add", f"up{number}", "netns", one, "type", "veth",
             "peer", "name", f"up{number}", "netns", other)  # fmt: skip
        for place, space in enumerate((one, other)):
            address = f"{self.subnet}.{100 + number}.{1 + place}/30"
            _run(ip, "-n", space, "addr", "add", address, "dev", f"up{number}")
            _run(ip, "-n", space, "link", "set", f"up{number}", "up")
            within = (tool("nsenter"), f"--net=/run/netns/{space}")
            _run(*within, tool("tc"), "qdisc", "replace", "dev", f"up{number}", "root", *_bucket(self.rate))

    def _add(self, ip: str, node: str) -> None:
        space, port, inner = self.namespace(node), self.port(node), f"{self.port(node)}i"
        leaf = self.namespace(self._leafs[node])
        _run(ip, "netns", "add", space)
        _run(ip, "link", "add", port, "netns", leaf, "type", "veth", "peer", "name", inner, "netns", space)
        _run(ip, "-n", leaf, "link", "set", port, "master", "leaf", "up")
        for command in (
            ("link", "set", inner, "name", INTERFACE),
            ("addr", "add", f"{self.address(node)}/24", "dev", INTERFACE),
            ("link", "set", INTERFACE, "up"),
            ("link", "set", "lo", "up"),
            ("route", "add", "default", "via", f"{self.subnet}.{self._place(node)}.254"),
        ):
            _run(ip, "-n", space, *command)
        self.sends(node, self.rate)
        self.receives(node, self.rate)

    def __exit__(self, *_: object) -> None:
        ip = tool("ip")
        for name in (*self.nodes, *self._names):
            subprocess.run([ip, "netns", "del", self.namespace(name)],
                           check=False, capture_output=True, timeout=20)  # fmt: skip


class NamespacedCluster(Cluster):
    """A Slurm of which each node is in a namespace of its own. `switches`: nodes by leaf switch."""

    def __init__(
        self, folder: Path, wires: Wires, settings: str = "", switches: Mapping[str, str] | None = None
    ) -> None:
        topology = "TopologyPlugin=topology/tree" if switches else ""
        super().__init__(folder, dict.fromkeys(wires.nodes, 0), f"{topology}\n{settings}")
        self._wires = wires
        self._switches = switches or {}
        self.controller = wires.controller

    def address(self, node: str) -> str:
        return self._wires.address(node)

    def __enter__(self) -> Self:
        lines = [f"SwitchName={name} Nodes={nodes}\n" for name, nodes in self._switches.items()]
        if lines:
            lines.append(f"SwitchName=spine Switches={','.join(self._switches)}\n")
            (self.folder / "topology.conf").write_text("".join(lines), "utf-8")
        return super().__enter__()

    def serve(self, node: str, *options: str) -> None:
        self.start(f"slurmd-{node}", "-D", "-N", node, *options, within=self._wires.within(node))


def _bucket(rate: float) -> tuple[str, ...]:
    return ("tbf", "rate", f"{rate:.0f}bit", "burst", BURST, "latency", "50ms")
