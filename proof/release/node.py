"""The Debian package on a Debian 12 with systemd and no network: from 0.1 by hand to its purge and back.

Each step asserts, and returns one line of what was seen; they run in their order on one machine.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from proof.containers import debian, run, store
from proof.release.place import PLACE, old_wheels, package
from proof.systemd.machine import Machine
from tools.version import version

HERE = PLACE / "debian"
IMAGE = "localhost/wirewatch-e2e-release"
STATE = "/var/lib/wirewatch"
CONFIG_FILE = "/etc/wirewatch/wirewatch.toml"
WIREWATCH = "/opt/wirewatch/bin/wirewatch"
NEXT = "99"
"""The version of a package that holds the same and is newer."""
NEWER, NEWER_ENGINE = "wirewatch-newer.deb", "wirewatch-nccl-newer.deb"
CONFIG = """
[listen]
socket = "/run/wirewatch/wirewatch.sock"
[state]
directory = "/var/lib/wirewatch"
"""
PLAY = """
[Service]
ExecStart=
ExecStart={wirewatch} serve --config /etc/wirewatch/wirewatch.toml --replay demo-dgx-h200 {more}
"""
BY_HAND = """
set -e
python3 -m venv /opt/wirewatch
/opt/wirewatch/bin/pip install --quiet --no-index --find-links /old wirewatch
cd /old-unit
install -m 644 wirewatch.sysusers /usr/lib/sysusers.d/wirewatch.conf
install -m 644 wirewatch.tmpfiles /usr/lib/tmpfiles.d/wirewatch.conf
systemd-sysusers wirewatch.conf
systemd-tmpfiles --create wirewatch.conf
install -m 640 -g wirewatch /dev/null /etc/wirewatch/wirewatch.toml
install -m 644 wirewatch.service /etc/systemd/system/
systemctl daemon-reload
systemctl enable wirewatch
"""
"""The steps of 0.1's deploy/systemd/README.md, but for where the packages come from."""
COUNT = """
import sqlite3
print(*sqlite3.connect("/var/lib/wirewatch/probes.sqlite").execute("select count(*) from probes").fetchone())
"""
LOADS = "from nccl.bindings import nccl; import cuda.core; print(nccl.get_version())"
AGED = """
import pathlib, sqlite3
folder = pathlib.Path("/var/lib/wirewatch")
for file in folder.glob("*.json"):
    file.write_text(file.read_text().replace('"version": {now},', '"version": {then},', 1))
with sqlite3.connect(folder / "probes.sqlite") as history:
    history.execute("PRAGMA user_version = {schema}")
"""
BACK = """
set -e
mv /opt/wirewatch.by-hand /opt/wirewatch
mv /opt/wirewatch/wirewatch.service /etc/systemd/system/
systemctl daemon-reload
systemctl enable wirewatch
"""
"""To 0.1, as docs/install.md says."""
RULE = "xid.79"
ANSWERS = {"2": "FAILED (that XID)", "3": "UNKNOWN (as it restarts)"}
"""What `wirewatch check --cached` may answer during an upgrade, on a machine with that fault."""
BOOTED = {"running", "degraded"}
"""Not `starting`: then /tmp is still to be emptied, under the feet of what runs."""
KEEP = ("-o", "Dpkg::Options::=--force-confold", "-o", "Dpkg::Use-Pty=0")


def image() -> None:
    """The machine: Debian's packages, the release's, and 0.1 with its unit."""
    base = debian(HERE, "systemd", "systemd-sysv", "python3", "python3-venv", "init-system-helpers")
    packages = HERE / "packages"
    shutil.rmtree(packages, ignore_errors=True)
    packages.mkdir()
    for name in ("wirewatch", "wirewatch-nccl"):
        shutil.copy2(package(name), packages)
        newer(packages, name)
    container = run("buildah", *store(HERE), "from", "scratch").strip()
    try:
        for what, where in (
            (base, "/"),
            (packages, "/packages"),
            (old_wheels(), "/old"),
            (PLACE / "0.1/deploy/systemd", "/old-unit"),
        ):
            run("buildah", *store(HERE), "add", "--quiet", container, str(what), where)
        run("buildah", *store(HERE), "config", "--cmd", "/sbin/init", container)
        run("buildah", *store(HERE), "commit", "--quiet", container, IMAGE)
    finally:
        run("buildah", *store(HERE), "rm", container)


def newer(packages: Path, name: str) -> None:
    """A package of a later version; with another text of its configuration file, where it has one."""
    tree = HERE / "newer"
    shutil.rmtree(tree, ignore_errors=True)
    run("dpkg-deb", "--raw-extract", str(package(name)), str(tree))
    control = tree / "DEBIAN/control"
    text = control.read_text("utf-8").replace(f"Version: {version()}", f"Version: {NEXT}")
    control.write_text(text.replace(f"wirewatch (= {version()})", f"wirewatch (= {NEXT})"), "utf-8")
    config = tree / "etc/wirewatch/wirewatch.toml"
    if config.exists():
        text = config.read_text("utf-8")
        assert "For a Prometheus" in text
        config.write_text(text.replace("For a Prometheus", "For the Prometheus"), "utf-8")
    made = packages / f"{name}-newer.deb"
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(made))


def old(machine: Machine) -> str:
    """0.1 by hand, with a fault that it remembers, a baseline and a probe."""
    machine.do("sh", "-c", BY_HAND)
    configured(machine, "--overlay xid-79")
    machine.do("systemctl", "start", "wirewatch")
    until(machine, lambda: RULE in kept(machine, "latches.json"))
    machine.do(WIREWATCH, "topology", "accept", "--why", "racked", "--by", "anna")
    probe = (WIREWATCH, "probe", "--config", CONFIG_FILE, "--replay", "demo-dgx-h200", "--op", "all_reduce")
    machine.do("setpriv", "--reuid", "wirewatch", "--regid", "wirewatch", "--clear-groups", *probe)
    until(machine, lambda: "racked" in kept(machine, "baseline.json"))
    assert machine.do("python3", "-c", COUNT).strip() == "1"
    configured(machine)
    return "0.1.0 by hand, as its page said: it remembers XID 79 of GPU 5, anna's baseline, and a probe"


def upgraded_from_old(machine: Machine) -> str:
    """The package over it."""
    began = time.monotonic()
    said = install(machine, package().name)
    took = time.monotonic() - began
    assert "kept as /opt/wirewatch.by-hand, with its unit" in said, said
    running(machine)
    remembers(machine)
    assert machine.do("python3", "-c", COUNT).strip() == "1"
    assert not aside(machine), aside(machine)
    assert machine.do("wirewatch", "--version").split()[-1] == version()
    return (
        f"`apt-get install ./{package().name}` took {took:.0f} s, without a network; {version()} runs, and "
        "still knows XID 79 of GPU 5, the baseline and the probe; nothing was put aside, 0.1's folder is kept"
    )


def upgraded(machine: Machine) -> str:
    """To a newer package, with a configuration that was changed here."""
    changed = f"{CONFIG}\n# mine\n"
    machine.write(CONFIG_FILE, changed)
    before, env = machine.unit()["MainPID"], machine.do("readlink", "/opt/wirewatch/env").strip()
    answered = watched(machine, lambda: install(machine, NEWER))
    running(machine)
    remembers(machine)
    assert machine.unit()["MainPID"] != before
    assert machine.do("cat", CONFIG_FILE) == changed
    assert machine.attempt("test", "-e", f"/opt/wirewatch/{env}") != 0
    assert machine.do("stat", "-c", "%a %U:%G", CONFIG_FILE).strip() == "640 root:wirewatch"
    return (
        f"to a newer package: {CONFIG_FILE} is as it was changed here, the service is a new one; {answered}"
    )


def rolled_back(machine: Machine) -> str:
    """To the package before it."""
    install(machine, "--allow-downgrades", package().name)
    running(machine)
    remembers(machine)
    assert machine.do("dpkg-query", "--show", "--showformat", "${Version}", "wirewatch") == version()
    return "`apt-get install --allow-downgrades` to the package before: it runs, with the same state"


def engine(machine: Machine) -> str:
    """wirewatch-nccl comes, stays in an upgrade of both packages, and goes."""
    asked = ("/opt/wirewatch/env/bin/python", "-c", LOADS)
    assert machine.attempt(*asked) != 0
    install(machine, package("wirewatch-nccl").name)
    number = int(machine.do(*asked))
    told = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    running(machine)
    install(machine, NEWER, NEWER_ENGINE)
    assert int(machine.do(*asked)) == number
    running(machine)
    said = install(machine, "--allow-downgrades", package().name)
    assert "Removing wirewatch-nccl" in said, said
    assert machine.attempt(*asked) != 0
    install(machine, package("wirewatch-nccl").name)
    machine.do("apt-get", "remove", "--yes", "wirewatch-nccl")
    assert machine.attempt(*asked) != 0
    running(machine)
    return (
        f"wirewatch-nccl installed: NCCL {told} loads, the service is restarted; both packages upgraded in "
        "one command: it loads; wirewatch alone replaced: apt removes wirewatch-nccl; installed again and "
        "removed: NCCL is gone"
    )


def newer_state(machine: Machine) -> str:
    """State that a later version wrote is refused in a line, and kept."""
    names = machine.do("sh", "-c", f"cd {STATE} && ls *.json *.sqlite").split()
    machine.do("systemctl", "stop", "wirewatch")
    machine.do("python3", "-c", AGED.format(now=1, then=9, schema=9))
    since = machine.do("date", "+%s").strip()
    machine.do("systemctl", "start", "wirewatch")
    until(machine, lambda: len(aside(machine)) == len(names))
    log = machine.do("journalctl", "-u", "wirewatch", "--since", f"@{since}", "--no-pager", "-o", "cat")
    lines = [line for line in log.splitlines() if "written by a newer wirewatch" in line]
    assert all(any(name in line and ".corrupt-" in line for line in lines) for name in names), log
    machine.do("systemctl", "stop", "wirewatch")
    machine.do("sh", "-c", f"cd {STATE} && for f in *.corrupt-*[0-9]; do mv $f ${{f%.corrupt-*}}; done")
    machine.do("python3", "-c", AGED.format(now=9, then=1, schema=2))
    machine.do("systemctl", "start", "wirewatch")
    running(machine)
    remembers(machine)
    return (
        f"{', '.join(names)} of a version 9: each refused in one line and kept; put back, all is known again"
    )


def back_to_old(machine: Machine) -> str:
    """The environment by hand, which the package has kept, with the state of now; and forward again."""
    machine.do("apt-get", "remove", "--yes", "wirewatch")
    machine.do("sh", "-c", BACK)
    configured(machine)
    machine.do("systemctl", "start", "wirewatch")
    running(machine)
    assert machine.do(WIREWATCH, "--version").split()[-1] == "0.1.0"
    remembers(machine)
    put_aside = [name.partition(".corrupt-")[0] for name in aside(machine)]
    machine.do("systemctl", "stop", "wirewatch")
    install(machine, package().name)
    running(machine)
    remembers(machine)
    return (
        "removed, and 0.1.0's folder put back: it runs and knows faults and baseline; put aside by it: "
        f"{', '.join(put_aside) or 'nothing'}; then {version()} over it again"
    )


def removed(machine: Machine) -> str:
    """Removed, installed again, purged."""
    machine.do("apt-get", "remove", "--yes", "wirewatch")
    assert machine.unit()["ActiveState"] == "inactive"
    gone = ("/opt/wirewatch", "/usr/bin/wirewatch", "/usr/lib/wirewatch", "/usr/share/wirewatch")
    assert all(machine.attempt("test", "-e", path) for path in gone)
    machine.do("rm", "-rf", "/opt/wirewatch.by-hand")
    install(machine, package().name)
    running(machine)
    remembers(machine)
    machine.do("apt-get", "purge", "--yes", "wirewatch")
    places = (*gone, STATE, CONFIG_FILE, "/run/wirewatch")
    assert all(machine.attempt("test", "-e", path) for path in places)
    assert not machine.tried("dpkg-query", "--show", "wirewatch").stdout.partition("\t")[2].strip()
    return (
        "removed: service and environment are gone, state and configuration stay and are used when it is "
        "installed again; purged: they are gone too"
    )


STEPS: Sequence[Callable[[Machine], str]] = (
    old, upgraded_from_old, upgraded, rolled_back, newer_state, back_to_old, engine, removed,
)  # fmt: skip


def configured(machine: Machine, more: str = "") -> None:
    machine.write(CONFIG_FILE, CONFIG)
    machine.do("mkdir", "-p", "/etc/systemd/system/wirewatch.service.d")
    machine.write(
        "/etc/systemd/system/wirewatch.service.d/recording.conf", PLAY.format(wirewatch=WIREWATCH, more=more)
    )
    machine.do("systemctl", "daemon-reload")


def install(machine: Machine, *words: str) -> str:
    """What apt says."""
    placed = (f"/packages/{word}" if word.endswith(".deb") else word for word in words)
    words = ("apt-get", "install", "--yes", *KEEP, *placed)
    done = machine.tried("env", "DEBIAN_FRONTEND=noninteractive", *words)
    assert done.returncode == 0, done.stdout + done.stderr + machine.journal()
    return done.stdout + done.stderr


def running(machine: Machine) -> None:
    """Wait until the unit is active and knows the fault."""
    machine.until(120, ActiveState="active")
    until(machine, lambda: RULE in machine.tried(WIREWATCH, "findings", "list", "--json").stdout)


def remembers(machine: Machine) -> None:
    for words, wanted in ((("findings", "list", "--json"), RULE), (("topology", "baseline"), "anna: racked")):
        done = machine.tried(WIREWATCH, *words)
        assert wanted in done.stdout, done


def watched(machine: Machine, work: Callable[[], str]) -> str:
    """Does it while a gate asks `wirewatch check` again and again; returns how that was answered."""
    asked = "wirewatch check --cached >/dev/null 2>&1; echo $? >>/tmp/codes; sleep 0.2"
    script = f"while [ ! -e /tmp/done ]; do {asked}; done"
    machine.do("rm", "-f", "/tmp/done", "/tmp/codes")
    machine.do("sh", "-c", f"({script}) >/dev/null 2>&1 &")
    work()
    machine.do("touch", "/tmp/done")
    codes = machine.do("cat", "/tmp/codes").split()
    strange = set(codes) - ANSWERS.keys()
    told = ", ".join(f"{codes.count(code)} times {ANSWERS.get(code, code)}" for code in sorted(set(codes)))
    assert not strange, told
    return f"`wirewatch check --cached`, asked meanwhile, answered {told}"


def aside(machine: Machine) -> list[str]:
    return [name for name in machine.do("ls", STATE).split() if ".corrupt-" in name and name[-1].isdigit()]


def kept(machine: Machine, name: str) -> str:
    done = machine.tried("cat", f"{STATE}/{name}")
    return done.stdout if done.returncode == 0 else ""


def until(machine: Machine, look: Callable[[], Any], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, machine.journal()[-3000:]
        time.sleep(0.5)


def lived() -> list[tuple[str, str]]:
    """The steps with what was seen, on a machine of their own."""
    image()
    rows = []
    with Machine(HERE, IMAGE) as machine:
        until(machine, lambda: machine.tried("systemctl", "is-system-running").stdout.strip() in BOOTED)
        for step in STEPS:
            told = step(machine)
            print(f"{step.__name__}: {told}", flush=True)
            rows.append((step.__name__, told))
    return rows
