"""`make e2e-systemd`: the unit under a real systemd; writes proof/systemd/systemd.md."""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from proof.systemd.machine import Machine, build, versions
from tools.prose import formatted

PAGE = Path(__file__).with_name("systemd.md")
CONFIG = """
[listen]
socket = "/run/wirewatch/wirewatch.sock"
[state]
directory = "/var/lib/wirewatch"
"""
DROP_IN = """
[Service]
ExecStart=
ExecStart=/opt/wirewatch/bin/wirewatch serve --config /etc/wirewatch/wirewatch.toml --replay {recording}
WatchdogSec=10
"""
STATUS = ("/opt/wirewatch/bin/wirewatch", "jobs", "status", "--json")
SYSLOG = f"{1 << 34:016x}"


def configured(machine: Machine, recording: str = "demo-dgx-h200") -> None:
    machine.write("/etc/wirewatch/wirewatch.toml", CONFIG)
    machine.do("mkdir", "-p", "/etc/systemd/system/wirewatch.service.d")
    machine.write(
        "/etc/systemd/system/wirewatch.service.d/recording.conf", DROP_IN.format(recording=recording)
    )
    machine.do("systemctl", "daemon-reload")
    machine.do("systemctl", "reset-failed", "wirewatch")


def ready(machine: Machine) -> str:
    configured(machine)
    began = time.monotonic()
    machine.do("systemctl", "start", "wirewatch")
    took = time.monotonic() - began
    unit = machine.until(60, ActiveState="active", StatusText="OK, a job may start")
    assert unit["NRestarts"] == "0"
    return f'`systemctl start` returned after {took:.1f} s, StatusText "{unit["StatusText"]}"'


def rings(machine: Machine) -> str:
    """A job of another user, with the tap itself; the agent on this machine, which plays no recording."""
    folder, nobody = (
        "/run/wirewatch-jobs",
        ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
    )
    kind, mode, owner = (
        machine.do("stat", "-f", "-c", "%T", folder).strip(),
        *machine.do("stat", "-c", "%a %U:%G", folder).split(),
    )
    assert (kind, mode, owner) == ("tmpfs", "3773", "wirewatch:wirewatch")
    job = " ".join(("sleep 600 |", *nobody, "python3 /jobs/tapjob.py /jobs/libwirewatch-tap.so 5"))
    machine.do("sh", "-c", f"({job}) > /dev/null 2>&1 &")
    inside = ("nsenter", "--target", machine.unit()["MainPID"], "--mount", "--")
    agent = (*inside, "setpriv", "--reuid", "wirewatch", "--regid", "wirewatch", "--clear-groups")
    end = time.monotonic() + 60
    while not (found := json.loads(machine.do(*agent, *STATUS))["rings"]):
        assert time.monotonic() < end, machine.journal()
        time.sleep(0.5)
    (ring,) = found
    assert (ring["state"], ring["uid"], ring["timed"]) == ("live", 65534, 5)
    name = f"{folder}/{ring['name']}"
    assert machine.attempt(*nobody, "ls", folder) != 0, "other users cannot list it"
    assert machine.attempt("setpriv", "--reuid", "4711", "--clear-groups", "cat", name) != 0
    assert machine.attempt("setpriv", "--reuid", "4711", "--clear-groups", "rm", "-f", name) != 0
    machine.do("sh", "-c", f"kill -KILL {ring['host_pid'] or ring['pid']}")
    began = time.monotonic()
    while machine.attempt("test", "-e", name) == 0:
        assert time.monotonic() - began < 240, machine.journal()
        time.sleep(1)
    took = time.monotonic() - began
    return (
        f"after boot {folder} is a tmpfs of mode {mode}; the ring of a job of user 65534 is read by the "
        f"agent and by no third user; killed, the job's ring is removed by the agent after {took:.0f} s"
    )


def hardened(machine: Machine) -> str:
    pid = machine.unit()["MainPID"]
    status = dict(
        line.split(":\t", 1)
        for line in machine.do("cat", f"/proc/{pid}/status").splitlines()
        if ":\t" in line
    )
    assert status["Uid"].split()[0] != "0"
    assert (status["CapEff"], status["CapBnd"]) == (SYSLOG, SYSLOG)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    inside = ("nsenter", "--target", pid, "--mount", "--")
    assert machine.attempt(*inside, "touch", "/usr/local/x") != 0
    assert machine.attempt(*inside, "touch", "/var/lib/wirewatch/x") == 0
    machine.do("rm", "/var/lib/wirewatch/x")
    return "its own user, CAP_SYSLOG alone, no new privileges, a filter of system calls, /usr read-only"


def limited(machine: Machine) -> str:
    """What systemd made of the limits; a container of podman has fewer open files than a machine."""
    wanted = {"MemoryMax": str(4 << 30), "TasksMax": "512", "LimitNOFILE": "4096", "OOMPolicy": "continue"}
    names = [word for name in wanted for word in ("-p", name)]
    shown = dict(
        line.split("=", 1) for line in machine.do("systemctl", "show", "wirewatch", *names).splitlines()
    )
    assert wanted.items() <= shown.items(), shown
    return "4 GiB of memory, 512 tasks, 4096 open files; a probe that is ended for its memory ends no unit"


def answers(machine: Machine) -> str:
    health = machine.health()
    assert health["health"] == "ok", health
    assert machine.attempt("/opt/wirewatch/bin/wirewatch", "check") == 0
    files = machine.do("ls", "/var/lib/wirewatch").split()
    assert "probes.sqlite" in files, files
    return f"/health is ok, `wirewatch check` exits 0, state: {', '.join(files)}"


def hung(machine: Machine) -> str:
    before = machine.unit()
    began = time.monotonic()
    machine.do("sh", "-c", f"kill -STOP {before['MainPID']}")
    after = machine.until(90, NRestarts="1", ActiveState="active", StatusText="OK, a job may start")
    took = time.monotonic() - began
    assert after["MainPID"] != before["MainPID"]
    journal = machine.journal()
    assert "Watchdog timeout" in journal
    assert "Fatal Python error: Aborted" in journal
    assert "lane-nvml" in journal or "Thread 0x" in journal
    return (
        "stopped by SIGSTOP: ended by the watchdog (10 s here), its stacks are in the journal, ready again "
        f"after {took:.0f} s"
    )


def stopped(machine: Machine) -> str:
    began = time.monotonic()
    machine.do("systemctl", "stop", "wirewatch")
    took = time.monotonic() - began
    unit = machine.unit()
    assert (unit["ActiveState"], unit["Result"], unit["ExecMainStatus"]) == ("inactive", "success", "0")
    assert machine.attempt("test", "-e", "/run/wirewatch") != 0
    assert took < 5
    return f"`systemctl stop` returned after {took:.1f} s, exit status 0, no socket left"


def driver_hangs(machine: Machine) -> str:
    configured(machine, "demo-dgx-h200 --overlay gpu-hang")
    machine.do("systemctl", "start", "wirewatch")
    end = time.monotonic() + 60
    while ".blind GPU 5: timeout" not in machine.unit()["StatusText"]:
        assert time.monotonic() < end, machine.unit()["StatusText"]
        time.sleep(0.5)
    time.sleep(25)
    unit = machine.unit()
    assert (unit["NRestarts"], unit["ActiveState"]) == ("0", "active")
    machine.do("systemctl", "stop", "wirewatch")
    said = unit["StatusText"][:60]
    return f'a GPU hangs in the driver: ready, watchdog fed, no restart in 25 s, StatusText "{said}..."'


def wrong(machine: Machine) -> str:
    configured(machine)
    machine.write("/etc/wirewatch/wirewatch.toml", "[listen]\nadress = 3\n")
    assert machine.attempt("systemctl", "start", "wirewatch") != 0
    time.sleep(7)
    unit = machine.unit()
    assert (unit["ActiveState"], unit["ExecMainStatus"], unit["NRestarts"]) == ("failed", "78", "0")
    assert "unknown key 'listen.adress'" in machine.journal()
    return "a wrong configuration: exit status 78, told in one line, not tried again"


STEPS: tuple[Callable[[Machine], str], ...] = (
    ready,
    hardened,
    limited,
    answers,
    hung,
    stopped,
    driver_hangs,
    wrong,
)


def main() -> int:
    began = time.monotonic()
    build()
    built = time.monotonic() - began
    rows: list[str] = []
    with Machine() as machine:
        end = time.monotonic() + 60
        # The unit is enabled; on a machine without GPUs it is ready too, and says that it knows nothing.
        while machine.attempt("systemctl", "is-active", "--quiet", "wirewatch"):
            assert time.monotonic() < end, machine.journal()
            time.sleep(0.5)
        first = machine.unit()["StatusText"]
        rows.append(f'| boot | enabled, active after boot without a GPU, StatusText "{first[:80]}" |')
        rows.append(f"| rings of jobs | {rings(machine)} |")
        machine.do("systemctl", "stop", "wirewatch")
        for step in STEPS:
            told = step(machine)
            print(f"{step.__name__}: {told}", flush=True)
            rows.append(f"| {step.__name__.replace('_', ' ')} | {told} |")
        about = ", ".join(versions(machine))
    took = time.monotonic() - began
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    head = (
        f"Last result of `make e2e-systemd`, {day}: all steps passed. {about}.\n"
        "systemd is process 1 of a container; the agent is installed as "
        "[deploy/systemd](../../deploy/systemd/README.md) says and plays the recording demo-dgx-h200.\n"
        f"\n{took:.0f} s in all, {built:.0f} of them for the image.\n"
    )
    table = "\n".join(("| step | what was seen |", "|---|---|", *rows))
    PAGE.write_text(formatted(f"# The unit under a real systemd\n\n{head}\n{table}\n"), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
