"""The real ibstat of Debian over a fabric that ibsim simulates: two hosts on one switch."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from tests.node.collectors.drawn import Watched
from wirewatch.core.ports import Output
from wirewatch.core.rdma import Ibstat, PortFacts, parse_ibstat
from wirewatch.core.types import Absent, Health, Why
from wirewatch.hw.command import SystemCommand

pytestmark = pytest.mark.system

NODE, OTHER = "H-00000000000c1000", "H-00000000000c2000"
FABRIC = f"""\
vendid=0x2c9
devid=0xd2f0
sysimgguid=0x5a000
switchguid=0x5a000(5a000)
Switch\t4 "S-000000000005a000"\t\t# "leaf" base port 0 lid 0 lmc 0
[1]\t"{NODE}"[1](c1001) \t\t# "left" lid 0 4xQDR
[2]\t"{OTHER}"[1](c2001) \t\t# "right" lid 0 4xQDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xc1000
caguid=0xc1000
Ca\t1 "{NODE}"\t\t# "left"
[1](c1001) \t"S-000000000005a000"[1]\t\t# lid 0 lmc 0 "leaf" lid 0 4xQDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xc2000
caguid=0xc2000
Ca\t1 "{OTHER}"\t\t# "right"
[1](c2001) \t"S-000000000005a000"[2]\t\t# lid 0 lmc 0 "leaf" lid 0 4xQDR
"""
PORT = ("ibsim0", "1")
UP = PortFacts("active", "link_up", 5e9, "InfiniBand", None)


def tool(name: str) -> str:
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    assert found, f"{name} is missing: tests/system/packages installs it"
    return found


class Fabric:
    """A simulated fabric, its console, and ibstat as the host `NODE` sees it; ends with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder = folder.resolve()
        (folder / "fabric").write_text(FABRIC, "utf-8")
        # A name of its own for the simulator's socket, so that two runs on one machine do not meet.
        self._environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "IBSIM_SOCKNAME": f"wirewatch-{os.getpid()}-{time.monotonic_ns()}",
            "OSM_CACHE_DIR": str(folder),
            "OSM_TMP_DIR": str(folder),
        }
        self._log = folder / "ibsim.log"
        run, ibstat = tool("ibsim-run"), tool("ibstat")
        wrapper = folder / "ibstat"
        wrapper.write_text(
            f"#!/bin/sh\ncd {folder}\nexport SIM_HOST={NODE} "
            f"IBSIM_SOCKNAME={self._environment['IBSIM_SOCKNAME']}\nexec {run} {ibstat}\n",
            "utf-8",
        )
        wrapper.chmod(0o755)
        self._search = f"{folder}:{self._environment['PATH']}"
        with self._log.open("wb") as log:
            self._simulator = subprocess.Popen(
                [tool("ibsim"), "-s", "fabric"],
                cwd=folder, env=self._environment, stdin=subprocess.PIPE, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        end = time.monotonic() + 10
        while "simulator ready" not in self._log.read_text("utf-8"):
            if self._simulator.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise AssertionError(f"ibsim did not start: {self._log.read_text('utf-8')}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        if self._simulator.poll() is None:
            os.killpg(self._simulator.pid, signal.SIGKILL)
        self._simulator.wait(10)
        assert self._simulator.stdin is not None
        self._simulator.stdin.close()

    def console(self, command: str) -> None:
        assert self._simulator.stdin is not None
        self._simulator.stdin.write(f"{command}\n".encode())
        self._simulator.stdin.flush()

    def manage(self) -> None:
        """One sweep of a real subnet manager on the other host."""
        done = subprocess.run(
            [tool("ibsim-run"), tool("opensm"), "-f", self._folder / "opensm.log", "-g", "0xc2001", "--once"],
            cwd=self._folder, env={**self._environment, "SIM_HOST": OTHER},
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def stop_answering(self) -> None:
        self._simulator.send_signal(signal.SIGSTOP)

    def processes(self) -> list[str]:
        """Names of all processes that work in the folder of this fabric."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").readlink() == self._folder:
                    found.append((process / "comm").read_text("utf-8").strip())
        return found

    def command(self, deadline: float = 10.0) -> SystemCommand:
        return SystemCommand(self._search, deadline)

    def ibstat(self) -> Ibstat:
        output = self.command().run("ibstat")
        assert isinstance(output, Output), output
        assert output.status == 0, output.err
        told = parse_ibstat(output.out)
        assert told.unknown == ()
        assert set(told.ports) == {PORT}
        return told

    def port(self) -> PortFacts:
        return self.ibstat().ports[PORT]

    def wait(self, wanted: Callable[[PortFacts], bool]) -> PortFacts:
        """The port, once it is as wanted: the console answers to nobody."""
        end = time.monotonic() + 5
        while not wanted(port := self.port()):
            assert time.monotonic() < end, port
            time.sleep(0.05)
        return port


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    with Fabric(tmp_path) as made:
        yield made


def test_the_device_is_reported_with_all_its_fields(fabric: Fabric) -> None:
    assert fabric.ibstat().devices == {
        "ibsim0": {
            "CA type": "simulator",
            "Number of ports": "1",
            "Firmware version": "1",
            "Hardware version": "a1",
            "Node GUID": "0x00000000000c1000",
            "System image GUID": "0x00000000000c1000",
        }
    }


def test_without_a_subnet_manager_a_wired_port_has_its_link_and_waits(fabric: Fabric) -> None:
    assert fabric.port() == replace(UP, state="init", lid=0)


def test_a_port_lives_through_a_pulled_wire_that_is_put_back(fabric: Fabric) -> None:
    fabric.manage()
    up = fabric.wait(lambda port: port.state == "active")
    assert up.lid
    assert up == replace(UP, lid=up.lid)

    fabric.console(f'Unlink "{NODE}"[1]')
    down = fabric.wait(lambda port: port.state == "down")
    assert down == replace(up, state="down", physical="polling"), "a port that is down keeps rate and lid"

    fabric.console(f'ReLink "{NODE}"[1]')
    assert fabric.wait(lambda port: port.physical == "link_up") == replace(up, state="init")

    fabric.manage()
    assert fabric.wait(lambda port: port.state == "active") == up


def test_the_wire_of_another_host_is_not_ours(fabric: Fabric) -> None:
    fabric.console(f'Unlink "{OTHER}"[1]')
    time.sleep(0.3)
    assert fabric.port() == replace(UP, state="init", lid=0)


def test_an_ibstat_that_waits_for_an_answer_that_does_not_come_is_killed(fabric: Fabric) -> None:
    assert fabric.port().state == "init"
    fabric.stop_answering()
    began = time.monotonic()
    told = fabric.command(deadline=1.0).run("ibstat")
    assert isinstance(told, Absent)
    assert told.why is Why.TIMEOUT
    assert 1.0 <= time.monotonic() - began < 5
    assert fabric.processes() == ["ibsim"]


def test_on_this_very_machine_ibstat_lists_the_devices_that_the_kernel_has_and_no_others() -> None:
    """Without any it prints nothing and succeeds."""
    tool("ibstat")
    told = SystemCommand().run("ibstat")
    assert isinstance(told, Output)
    assert set(parse_ibstat(told.out).devices) <= {
        device.name for device in Path("/sys/class/infiniband").glob("*")
    }


def test_the_real_ibstat_is_compared_with_sysfs_and_a_difference_is_reported(fabric: Fabric) -> None:
    """The simulator has no sysfs of its own: ours says what its port did when both agreed."""
    fabric.manage()
    fabric.wait(lambda port: port.state == "active")
    node = Watched("infiniband")
    node.files.nic("ibsim0", "0000:10:00.0", "pci0000:00/0000:00:01.0", rate="40 Gb/sec (4X QDR)")
    node.hardware = replace(node.hardware, command=fabric.command())
    assert node.poll(2) == ()
    fabric.console(f'Unlink "{NODE}"[1]')
    fabric.wait(lambda port: port.state == "down")
    node.poll(2, every=300.0)
    node.poll(1)
    assert node.rules() == {("infiniband.ibstat_disagrees", "ibsim0 port 1"): Health.DEGRADED}
    words = "state: ibstat down, sysfs active; physical state: ibstat polling, sysfs link_up"
    assert node.component.findings[0].evidence == words
    node.files.set("ibsim0", state="1: DOWN", phys_state="2: Polling")
    node.poll(3, every=300.0)
    assert node.rules() == {("infiniband.port_down", "ibsim0 port 1"): Health.FAILED}


def test_nothing_of_the_fabric_is_left_behind(tmp_path: Path) -> None:
    with Fabric(tmp_path) as made:
        made.manage()
        made.port()
        assert made.processes() == ["ibsim"]
    assert made.processes() == []
    assert not list(tmp_path.glob("sys-*"))
