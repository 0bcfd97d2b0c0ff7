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
