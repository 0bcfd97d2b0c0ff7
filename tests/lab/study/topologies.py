"""Topology files of our own, in the form that NCCL writes."""

from collections.abc import Sequence

LINK = 'link_speed="32.0 GT/s PCIe" link_width="16"'
NVSWITCH = '<nvlink target="fffffff:ff:ff.0" count="{}" tclass="0x068000"/>'


def gpu(address: str, dev: int = 0, links: int = 18, link: str = LINK, wires: str = "") -> str:
    inside = wires or (NVSWITCH.format(links) if links else "")
    return (
        f'<pci busid="{address}" class="0x030200" vendor="0x10de" {link}>'
        f'<gpu dev="{dev}" sm="90" rank="{dev}" gdr="1">{inside}</gpu></pci>'
    )


def nic(address: str, name: str, megabits: int = 400000, port: int = 1, link: str = LINK) -> str:
    return (
        f'<pci busid="{address}" class="0x020700" {link}><nic>'
        f'<net name="{name}" dev="0" speed="{megabits}" port="{port}" guid="0x1" maxconn="131072" gdr="1"/>'
        "</nic></pci>"
    )


def switch(address: str, *below: str) -> str:
    return f'<pci busid="{address}" class="0x060400" {LINK}>{"".join(below)}</pci>'


def system(*cpus: Sequence[str], numa: bool = True, hosts: Sequence[str] = ()) -> bytes:
    """A file with the devices of each CPU."""
    inside = ""
    for number, below in enumerate(cpus):
        host = f'host_hash="{hosts[number]}" ' if hosts else ""
        inside += f'<cpu {host}numaid="{number if numa else -1}" arch="x86_64" vendor="GenuineIntel">'
        inside += "\n".join(below) + "</cpu>\n"
    return f'<system version="1">\n{inside}</system>\n'.encode()


GRAPHS = b"""<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="30" speedinter="30" typeintra="NVL"
    typeinter="PIX" samechannels="1">
    <channel><net dev="0"/><gpu dev="0"/><gpu dev="0x1"/><net dev="0"/></channel>
    <channel><gpu dev="0x1"/><gpu dev="0"/></channel>
  </graph>
  <graph id="3" pattern="5" crossnic="0" nchannels="0" speedintra="0" speedinter="0" typeintra="DIS"
    typeinter="DIS" samechannels="1"/>
</graphs>
"""
