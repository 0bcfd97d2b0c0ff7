"""A machine of its own as far as the kernel gives one: namespaces of mounts, network and processes.

What a control plane and a kubelet start, mount and configure ends with them, however the run ends. Control
groups and the kernel's settings are of the whole machine: the first are made below one name and removed, the
others put back.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proof.containers import run
from proof.kubernetes.components import cache

GROUP = "wirewatch-e2e-kubernetes"
NODE_ADDRESS = "10.201.0.1"
SERVICES = "10.201.96.0/24"
API_ADDRESS = "10.201.96.1"
"""The first of the services' addresses, which pods get; one of the node itself, so without a proxy."""
_KERNEL = (
    "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
)  # fmt: skip
"""What a kubelet sets."""
_HIDDEN = ("/var/lib", "/var/log")
"""Folders whose changes are kept in the run's own."""


def home() -> Path:
    """The run's folder, beside the built programs."""
    return cache().parent / "run"


def enclosed(module: str) -> int:
    """Run a module as the first process of new namespaces; its exit status. Leaves nothing of it behind."""
    folder = home()
    # Of a run that was killed.
    _remove(folder)
    folder.mkdir(parents=True)
    with _kernel_as_it_was(), _control_groups():
        try:
            space = ("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child=KILL")
            return subprocess.run([*space, sys.executable, "-m", module, "--inside"], check=False).returncode
        finally:
            _remove(folder)


def settle_in() -> None:
    """Inside: folders of the machine that are written to, and the node's addresses."""
    folder = home()
    for place in _HIDDEN:
        upper, work = folder / f"upper{place.replace('/', '-')}", folder / f"work{place.replace('/', '-')}"
        upper.mkdir()
        work.mkdir()
        layers = f"lowerdir={place},upperdir={upper},workdir={work}"
        run("mount", "-t", "overlay", "overlay", "-o", layers, place)
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    # The kubelet wants to know the disk below its folder, which an overlay hides.
    for place in ("/var/lib/kubelet", "/var/lib/wirewatch", "/var/log/pods"):
        real = folder / "disk" / place.replace("/", "-").strip("-")
        real.mkdir(parents=True)
        Path(place).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", str(real), place)
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "node0", "type", "bridge")
    run("ip", "address", "add", f"{NODE_ADDRESS}/24", "dev", "node0")
    run("ip", "link", "set", "node0", "up")
    run("ip", "address", "add", f"{API_ADDRESS}/32", "dev", "lo")


@contextmanager
def _kernel_as_it_was() -> Iterator[None]:
    files = [Path("/proc/sys", name) for name in _KERNEL]
    before = {file: file.read_text("ascii") for file in files if file.exists()}
    try:
        yield
    finally:
        for file, text in before.items():
            if file.read_text("ascii") != text:
                file.write_text(text, "ascii")


def hierarchies() -> tuple[Path, ...]:
    """Where control groups are mounted."""
    lines = Path("/proc/self/mounts").read_text("utf-8").splitlines()
    return tuple(Path(line.split()[1]) for line in lines if line.split()[2] in {"cgroup", "cgroup2"})


@contextmanager
def _control_groups() -> Iterator[None]:
    mine = [place / GROUP for place in hierarchies()]
    for group in mine:
        group.mkdir(exist_ok=True)
    try:
        yield
    finally:
        end = time.monotonic() + 20
        # The last processes may be a moment away from their end.
        while any(group.exists() for group in mine) and time.monotonic() < end:
            for group in mine:
                for folder, _, _ in sorted(os.walk(group), reverse=True):
                    with suppress(OSError):
                        Path(folder).rmdir()
            time.sleep(0.1)
        left = [str(group) for group in mine if group.exists()]
        assert not left, f"control groups are left: {left}"


def _remove(folder: Path) -> None:
    """All of it; mounts in it were of the run's own namespace."""
    if folder.exists():
        shutil.rmtree(folder)
