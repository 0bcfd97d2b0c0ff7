"""What the chart's containers do to folders of the node: their scripts, as root without a capability."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.documents import KUBERNETES, container, documents, pod_of, read
from tools.chart.helm import manifest
from wirewatch.statefolder import StateFolder

pytestmark = pytest.mark.system
GROUP = 65532
MARK = ".made-by-wirewatch"
BARE = ["--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--clear-groups", "--no-new-privs"]
ROOT = ["setpriv", "--reuid=0", f"--regid={GROUP}", *BARE]
SCRIPT = container(pod_of(read(KUBERNETES / "default.yaml")), "folders")["args"][0]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the node as the kubelet makes it, which every user may reach."""
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        made = Path(above) / "wirewatch"
        made.mkdir(mode=0o755)
        made.chmod(0o755)
        yield made


def run(*folders: Path, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    words = [*ROOT, "sh", "-ec", script, "folders", *map(str, folders)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def owners(folder: Path) -> dict[str, tuple[int, int, int, int]]:
    """What a change of owner or mode changes, of the folder and all below it, links themselves."""
    found = {}
    for one in (folder, *folder.rglob("*")):
        is_ = one.lstat()
        found[str(one.relative_to(folder))] = (is_.st_uid, is_.st_gid, is_.st_mode, is_.st_ctime_ns)
    return found


def test_a_new_folder_is_marked_and_the_agents(folder: Path) -> None:
    assert run(folder).returncode == 0
    assert (folder / MARK).is_file()
    assert (folder.stat().st_gid, folder.stat().st_mode & 0o777) == (GROUP, 0o775)
    agent = ["setpriv", "--reuid=65532", f"--regid={GROUP}", *BARE, "touch", str(folder / "new")]
    subprocess.run(agent, check=True)


def test_what_root_left_in_a_marked_folder_becomes_the_agents_whatever_else_is_there(folder: Path) -> None:
    """An agent that was privileged left its files; somebody kept a copy beside them."""
    run(folder)
    (folder / "latches.json").touch(mode=0o600)
    (folder / "copy.tar").touch(mode=0o600)
    assert run(folder).returncode == 0
    for name in ("latches.json", "copy.tar"):
        found = (folder / name).stat()
        assert (found.st_gid, found.st_mode & 0o777) == (GROUP, 0o660)


@pytest.mark.parametrize("there", ["shadow", "ssh/ssh_host_ed25519_key", ".hidden", "agent.lock.d/x"])
def test_a_folder_with_files_of_others_is_not_touched_and_the_pod_says_so(folder: Path, there: str) -> None:
    """As /etc would be, were it not refused before: the files of a machine keep owner and mode."""
    secret = folder / there
    secret.parent.mkdir(exist_ok=True)
    secret.touch(mode=0o600)
    (folder / "agent.lock").touch(mode=0o600)
    (folder / "pods").mkdir(mode=0o700)
    os.chown(folder / "pods", 1000, 1000)
    before = owners(folder)
    done = run(folder)
    assert done.returncode == 1
    assert f"has {there.partition('/')[0]}, which is not wirewatch's. Nothing was changed." in done.stderr
    assert owners(folder) == before


@pytest.mark.parametrize("kind", ["link", "another user's", "folder"])
def test_a_mark_that_root_did_not_make_is_none(folder: Path, kind: str) -> None:
    mark, other = folder / MARK, folder / "passwd"
    other.touch(mode=0o600)
    if kind == "link":
        mark.symlink_to(other)
    elif kind == "folder":
        mark.mkdir()
    else:
        mark.touch()
        os.chown(mark, 1000, 1000)
    before = owners(folder)
    assert run(folder).returncode == 1
    assert owners(folder) == before


def test_a_folder_of_0_2_is_marked_where_nothing_else_is_in_it(folder: Path) -> None:
    """All that an agent keeps, files put aside included, as an agent of 0.2 that was root left it."""
    state = StateFolder(folder)
    for one in (*state.memories, state.agent_lock, state.probe_lock):
        one.touch(mode=0o600)
    (folder / "latches.json.corrupt-1").touch(mode=0o600)
    (folder / "probes.sqlite.new").touch(mode=0o600)
    assert run(folder).returncode == 0
    assert (folder / MARK).is_file()
    assert {(one.stat().st_gid, one.stat().st_mode & 0o060) for one in folder.iterdir()} == {(GROUP, 0o060)}


def test_sockets_of_an_agent_of_0_2_stay_and_so_does_their_folder(folder: Path) -> None:
    """The group has the folder of the gate already: nothing is to do, and nothing is done."""
    os.chown(folder, 0, GROUP)
    folder.chmod(0o775)
    (folder / "wirewatch.sock").touch()
    (folder / "root's").touch(mode=0o600)
    before = owners(folder)
    done = run(folder)
    assert (done.returncode, owners(folder)) == (0, before)
    assert "the agents' already" in done.stdout


def test_the_folder_of_another_user_stays_and_the_next_is_made(folder: Path) -> None:
    """As a systemd unit left it, for its user alone: what comes after it is not forgotten."""
    theirs = folder.parent / "unit"
    theirs.mkdir(mode=0o700)
    (theirs / "x").touch()
    os.chown(theirs, 1000, 1000)
    before = owners(theirs)
    done = run(theirs, folder)
    assert (done.returncode, owners(theirs)) == (0, before)
    assert (folder / MARK).is_file()


def test_nothing_behind_a_link_or_in_lost_and_found_changes(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.touch(mode=0o600)
    run(folder)
    (folder / "link").symlink_to(outside)
    (folder / "lost+found").mkdir(mode=0o700)
    (folder / "lost+found" / "x").touch(mode=0o600)
    before = (owners(outside), owners(folder / "lost+found"))
    assert run(folder).returncode == 0
    assert (owners(outside), owners(folder / "lost+found")) == before


def test_a_folder_of_the_agents_own_in_it_that_root_cannot_read_stops_nothing(folder: Path) -> None:
    """Root without capabilities may not look into it."""
    run(folder)
    (folder / "work").mkdir(mode=0o700)
    (folder / "work" / "x").touch()
    os.chown(folder / "work", 65532, GROUP)
    (folder / "pairs.json").touch(mode=0o600)
    assert run(folder).returncode == 0
    assert (folder / "pairs.json").stat().st_gid == GROUP


def test_a_folder_of_rings_is_known_by_the_folder_of_pods_that_was_made_in_it(folder: Path) -> None:
    """What somebody puts there later is no reason to stop; the same file before it is."""
    script = SCRIPT.replace("/run/wirewatch-jobs", str(folder))
    assert run(folder, script=script).returncode == 0
    (folder / "notes").touch(mode=0o600)
    assert run(folder, script=script).returncode == 0
    assert (folder / "notes").stat().st_gid == 0
    (folder / "pods").chmod(0o773)
    before = owners(folder)
    assert run(folder, script=script).returncode == 1
    assert owners(folder) == before


JOBS = {"jobs": {"hostPath": "/run/wirewatch-jobs"}}


def test_a_folder_of_others_gets_no_rings_and_no_mount(folder: Path) -> None:
    """A typing error in jobs.hostPath would hide a folder of the node behind a mount of memory."""
    (folder / "theirs").touch(mode=0o644)
    before = owners(folder)
    pod = pod_of(documents(manifest(JOBS)))
    for name, words in (("folders", ROOT), ("mount", ["unshare", "--mount"])):
        command = [*container(pod, name)["command"], *container(pod, name)["args"]]
        here = [word.replace("/run/wirewatch-jobs", str(folder)) for word in command]
        if name == "folders":
            here = [word for word in here if word != "/var/lib/wirewatch"]
        done = subprocess.run([*words, *here], capture_output=True, text=True, check=False)
        assert done.returncode == 1, name
        assert "has theirs, which is not wirewatch's" in done.stderr
    assert owners(folder) == before
