"""How the bundled recording demo-dgx-h200 comes to be: real GPUs in a node that is made up.

    python -m tools.demo_recording agent/wirewatch/recordings/demo-dgx-h200

The GPUs are those of h200x8, both moments. PCI tree, RDMA devices, modules, host, kernel log and `ibstat` are
made up after public facts about such nodes (demo_pci.py, demo_nics.py, demo_rdma.py): they are laid out as
files and read as `wirewatch record` reads them. What the GPUs say of their place on PCI is rewritten to fit.
"""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from tools.demo_nics import FIRMWARE, NICS, ibstat
from tools.demo_pci import (
    GPU_BUSES,
    NVSWITCH_BUSES,
    STORAGE_BUSES,
    FileTree,
    Links,
    address,
    gpu_address,
    pci_files,
)
from tools.demo_probe import probed
from tools.demo_rdma import REFUSED, SECONDS, rdma_files
from wirewatch.cli import recorder
from wirewatch.core.ports import Answer
from wirewatch.core.types import Absent, Json
from wirewatch.hw import recording
from wirewatch.hw.files import SystemSysfs, absent_errno
from wirewatch.hw.overlay import is_counter
from wirewatch.hw.recording import Key, Recording, load_recording
from wirewatch.hw.replay import RUN

REAL = "h200x8"
KERNEL = "5.15.0-1074-nvidia"
OFED = "24.10-0.7.0"
FILE_US = 20.0
STEPS = 12
"""Moments between the two real ones, so that rates are even."""
NODE, SYSTEM = 40, 50
"""nvmlGpuTopologyLevel_t: within one NUMA node, and between them."""
NOTE = (
    f"real: what NVML says of the eight GPUs, from {REAL}, but for PCI addresses, the levels between them and"
    " that there were no events; made up by tools/demo_recording.py: PCI tree, network, modules, host,"
    " kernel log, ibstat; the probe: times of nccl-tests on these GPUs, the rest made up;"
    f" the two real moments stand {SECONDS} s apart instead of 138.6, with counters growing evenly in between"
)

_GPU = re.compile(r"gpu(\d+)/(\w+)\((.*)\)")

HOST: dict[str, Json] = {
    "BootId": "00000000-0000-4000-8000-000000000009",
    "BootTime": 1794358800.0,
    "Hostname": "x0",
    "Kernel": KERNEL,
    "Machine": "x86_64",
    "CpuCount": 224,
    "MemoryBytes": 2_164_195_454_976,
}


def _placed(question: str, answer: Answer) -> Answer:
    """The answer of a GPU, with its place on PCI as the made-up tree has it."""
    match = _GPU.fullmatch(question)
    if match is None or isinstance(answer.value, Absent):
        return answer
    index, call, arguments = int(match[1]), match[2], match[3]
    if call == "TopologyCommonAncestor":
        half = len(GPU_BUSES) // 2
        return Answer(NODE if index // half == int(arguments) // half else SYSTEM, answer.us)
    if call.startswith("PciInfo") and isinstance(answer.value, dict):
        short = gpu_address(index).upper()
        place = {"domain": 0, "bus": GPU_BUSES[index], "device": 0}
        texts = {"busId": f"0000{short}", "busIdLegacy": short}
        new = place | texts
        return Answer({name: new.get(name, value) for name, value in answer.value.items()}, answer.us)
    return answer


def _nvml(real: Recording) -> Iterator[tuple[int, Key, Answer]]:
    events: Key = ("nvml", "Events()")
    for key, history in {**real.answers, events: ((0, Answer([], FILE_US)),)}.items():
        yield from ((moment, key, _placed(key[1], answer)) for moment, answer in history)


def _modules(driver: str) -> FileTree:
    traffic = load_recording("h200x4-traffic").at(("sysfs", "read /proc/driver/nvidia/version"), 0)
    versions = {"nvidia": driver, "nvidia_peermem": driver}
    versions |= dict.fromkeys(("ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib"), OFED)
    files: FileTree = {
        "/proc/driver/nvidia/version": str(traffic.value if traffic else ""),
        "/proc/sys/kernel/osrelease": f"{KERNEL}\n",
        "/sys/devices/system/node/online": "0-1\n",
        "/sys/module/ib_core/parameters/netns_mode": "Y\n",
    }
    for module, version in versions.items():
        files |= {
            f"/sys/module/{module}/initstate": "live\n",
            f"/sys/module/{module}/version": f"{version}\n",
        }
    return files


def _lay(root: Path, files: FileTree, links: Links) -> None:
    """Write the files below a folder that stands for `/`."""
    for path, content in files.items():
        at = root / path.lstrip("/")
        (at if path.endswith("/") else at.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            at.write_bytes(content if isinstance(content, bytes) else content.encode())
    for path, target in links.items():
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / path.lstrip("/")).symlink_to(os.path.relpath(target, Path(path).parent))


class _Sysfs(SystemSysfs):
    """The files as laid out; those that the kernel would not read are refused as by it."""

    def data(self, path: str) -> bytes | Absent:
        content = super().data(path)
        if not isinstance(content, Absent) and content.decode("latin-1").strip() == REFUSED:
            return absent_errno(int(REFUSED.rpartition(" ")[2]), path)
        return content


def _sysfs(moment: int, driver: str) -> Iterator[tuple[int, Key, Answer]]:
    """What a recording holds of the files, as `wirewatch record` would have read them."""
    with tempfile.TemporaryDirectory() as folder:
        for files, links in (pci_files(), rdma_files(moment), (_modules(driver), Links())):
            _lay(Path(folder), files, links)
        sysfs = _Sysfs(Path(folder))
        calls: dict[str, Callable[[str], Json | Absent]] = {
            "read": sysfs.read, "list": sysfs.entries, "link": sysfs.link,
            "data": lambda path: _hex(sysfs.data(path)),
        }  # fmt: skip
        for call, path in recorder.walk(sysfs):
            yield moment, ("sysfs", f"{call} {path}"), Answer(calls[call](path), FILE_US)


def _hex(data: bytes | Absent) -> str | Absent:
    return data if isinstance(data, Absent) else data.hex()


def _kernel_log(driver: str) -> list[Json]:
    """Harmless records of /dev/kmsg, of the kinds that are kept."""
    nic, storage = address(NICS[0].bus), address(STORAGE_BUSES[0])
    device = f"\n SUBSYSTEM=pci\n DEVICE=+pci:{nic}"
    link = "504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)"
    switch = f"device {address(NVSWITCH_BUSES[0])}, Vendor Id = 0x10de, Device Id = 0x22a3, Class = 0x68000"
    return [
        "6,812,2310442,-;pcieport 0000:15:01.0: AER: enabled with IRQ 41",
        f"6,1102,4420117,-;mlx5_core {nic}: firmware version: {FIRMWARE}{device}",
        f"6,1103,4420190,-;mlx5_core {nic}: {link}{device}",
        f"6,1196,5102318,-;nvidia-nvswitch: Probing {switch}",
        f"6,1203,5140900,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build",
        f"6,1311,9873305,-;mlx5_core {storage} ens6np0: Link up",
    ]


def _told(real: Recording, driver: str) -> Iterator[tuple[int, Key, Answer]]:
    yield from _nvml(real)
    for call, value in HOST.items():
        yield 0, ("host", f"{call}()"), Answer(value)
    yield from chain.from_iterable(_sysfs(moment, driver) for moment in range(len(real.times)))
    yield 0, ("kmsg", "Records()"), Answer(_kernel_log(driver))
    yield 0, ("command", "ibstat()"), Answer({"status": 0, "out": ibstat(), "err": ""})


def _rows(real: Recording, driver: str) -> list[dict[str, Any]]:
    """Lines of the recording: in order of moments, an answer only where it is new.

    Counters grow evenly from the first real moment to the second; all else is as in the second from the
    first step on, so that a loop shows the node at work.
    """
    ends: tuple[dict[Key, Answer], dict[Key, Answer]] = ({}, {})
    for moment, key, answer in _told(real, driver):
        ends[moment][key] = answer
    first, second = ends
    rows = [recording.pack(0, *key, answer) for key, answer in first.items()]
    last = {key: answer.value for key, answer in first.items()}
    for step in range(1, STEPS + 1):
        for key, answer in second.items():
            now = Answer(_between(key, first.get(key), answer, step), answer.us)
            if key not in last or last[key] != now.value:
                last[key] = now.value
                rows.append(recording.pack(step, *key, now))
    return rows


def _between(key: Key, first: Answer | None, second: Answer, step: int) -> Json | Absent:
    start, end = (recording.number(a.value) if a else None for a in (first, second))
    if start is None or end is None or not is_counter(key):
        return second.value
    now = start + (end - start) * step // STEPS
    return str(now) if isinstance(second.value, str) else now


def build(target: Path) -> int:
    """Write the recording; returns the number of lines."""
    real = load_recording(REAL)
    driver = str(real.manifest["driver"])
    start = real.manifest["moments"][0]["at"]
    every = SECONDS / STEPS
    moments = [
        {"moment": n, "at": start + every * n, "seconds": every * n, "note": "at work" if n else "idle"}
        for n in range(STEPS + 1)
    ]
    manifest = {
        "wirewatch": "tools/demo_recording.py",
        "masked": True,
        "product": real.manifest["product"],
        "gpus": real.manifest["gpus"],
        "driver": driver,
        "source": "synthetic",
        "note": NOTE,
        "moments": moments,
    }
    rows = _rows(real, driver)
    recording.write(target, manifest, rows)
    rows.append(recording.pack(0, *RUN, Answer(probed(load_recording(str(target))))))
    return recording.write(target, manifest, rows)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
