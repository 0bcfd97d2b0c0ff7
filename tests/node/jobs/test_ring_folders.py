"""Folders of rings: whose a ring is, which folders are trusted, and what nobody can take from others."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.disks import OTHER, needs_root, open_folder
from tests.examples import examples
from tests.node.jobs.ringfiles import RingWriter, Written, later
from wirewatch.core.jobs import RingsReading
from wirewatch.jobs.tap import folders, rings
from wirewatch.jobs.tap.folders import owners_here
from wirewatch.jobs.tap.ringfile import RING_BYTES
from wirewatch.jobs.tap.rings import FileRings

POD, SECOND = "0b0e6a8e-0000-4000-8000-00000000000a", "0b0e6a8e-0000-4000-8000-00000000000b"
AGENTS = 40_000
"""A group that only the agent has."""


class Ticks:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def made(folder: Path, mode: int) -> Path:
    folder.mkdir()
    folder.chmod(mode)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """As the chart makes it: closed to others, and below it what the kubelet hands on to each pod."""
    folder = made(tmp_path / "jobs", 0o750)
    made(folder / "pods", 0o2773)
    return folder


def poll(root: Path, **after: int) -> RingsReading:
    with closing(FileRings(root)) as port:
        found = port.poll(after)
    assert isinstance(found, RingsReading)
    return found


def refusals(found: RingsReading) -> dict[str, str]:
    return {one.name: one.why.detail for one in found.refused}


def owners(found: RingsReading) -> dict[str, str]:
    return {one.ring.name: one.ring.identity for one in found.rings}


def test_a_folder_says_whose_a_ring_is_and_a_user_where_there_is_none(root: Path) -> None:
    made(root / "rings", 0o3773)
    made(root / "slurm", 0o751)
    made(root / "containers", 0o751)
    places = (".", "rings", f"pods/{POD}", "pods/" + "a" * 32, "slurm/4711", "containers/trainer.1")
    with ExitStack() as writers:
        for place in places:
            (root / place).mkdir(exist_ok=True)
            writers.enter_context(RingWriter(root / place / "x.ring"))
        found = poll(root)
    user = f"user:{os.geteuid()}"
    assert owners(found) == {
        "x.ring": user, "rings/x.ring": user, f"pods/{POD}/x.ring": f"pod:{POD}",
        f"pods/{'a' * 32}/x.ring": f"pod:{'a' * 32}", "slurm/4711/x.ring": "slurm:4711",
        "containers/trainer.1/x.ring": "container:trainer.1",
    }  # fmt: skip
    assert found.refused == ()


def test_a_ring_in_a_folder_is_read_on_by_its_path(root: Path) -> None:
    made(root / "pods" / POD, 0o2773)
    with RingWriter(root / "pods" / POD / "x.ring") as ring, closing(FileRings(root)) as port:
        for number in range(3):
            ring.put(later(Written(), number))
        name = f"pods/{POD}/x.ring"
        found = port.poll({name: 2})
        assert isinstance(found, RingsReading)
        assert [call.number for call in found.rings[0].calls] == [3]
        shutil.rmtree(root / "pods" / POD)
        ring.put(Written())
        found = port.poll({name: 3})
        assert isinstance(found, RingsReading)
        assert [call.number for call in found.rings[0].calls] == [4], "the folder goes with its pod"
        assert owners(found) == {name: f"pod:{POD}"}


@needs_root
@pytest.mark.parametrize(
    ("user", "mode", "refused"),
    [(0, 0o3773, False), (AGENTS, 0o3773, False), (OTHER, 0o3773, True), (OTHER, 0o750, False)],
)
def test_the_folder_of_old_pods_counts_unless_a_user_made_it_who_comes_there(
    tmp_path: Path, user: int, mode: int, *, refused: bool
) -> None:
    """Who made it may put a link in its place while its files are looked at, and have others removed."""
    root = made(tmp_path / "jobs", mode)
    old = made(root / "rings", 0o3773)
    os.chown(root, AGENTS, AGENTS)
    os.chown(old, user, AGENTS)
    with RingWriter(old / "x.ring"):
        found = poll(root)
    why = f"user {OTHER} made it, and could put another folder in its place"
    assert (len(found.rings), refusals(found)) == ((0, {"rings": why}) if refused else (1, {}))


def test_of_too_many_folders_those_that_changed_last_are_looked_into(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders that were left behind hide no job that is new, whatever its name."""
    monkeypatch.setattr(folders, "FOLDERS", 2)
    for number, name in enumerate((POD, "a" * 32, "0" * 32)):
        os.utime(made(root / "pods" / name, 0o2773), (1e9 - number, 1e9 - number))
    with RingWriter(made(root / "pods" / ("f" * 32), 0o2773) / "x.ring"):
        found = poll(root)
    assert list(owners(found)) == [f"pods/{'f' * 32}/x.ring"]
    assert refusals(found) == {"pods/...": "2 more folders than are looked into"}


@needs_root
@pytest.mark.parametrize(
    ("guard", "above", "mode", "user", "group", "refused"),
    [
        ("nobody else may write there", 0o755, 0o755, 0, 0, ""),
        ("others write, and cannot come here", 0o750, 0o2773, 0, 0, ""),
        ("others write, and come here", 0o751, 0o2773, 0, 0, "any user may write there"),
        ("another user owns it", 0o750, 0o755, OTHER, 0, f"user {OTHER} made it"),
        ("another group writes", 0o755, 0o775, 0, OTHER, f"group {OTHER} may write there"),
        ("another group reads", 0o755, 0o755, 0, OTHER, ""),
        ("the group of the root writes", 0o755, 0o775, 0, AGENTS, ""),
    ],
)
def test_a_kind_of_folders_counts_where_only_the_platform_names_them(
    tmp_path: Path, guard: str, above: int, mode: int, user: int, group: int, refused: str
) -> None:
    root = made(tmp_path / "jobs", above)
    kind = made(root / "slurm", mode)
    os.chown(root, 0, AGENTS)
    os.chown(kind, user, group)
    kind.chmod(mode)
    with RingWriter(made(kind / "4711", 0o2770) / "x.ring"):
        found = poll(root)
    assert bool(found.rings) is not bool(refused), guard
    told = {"slurm": f"{refused}, so that no name in it says whose a ring is"} if refused else {}
    assert refusals(found) == told, guard


@pytest.mark.parametrize(
    ("guard", "above", "kind", "mode", "read"),
    [
        ("others write, and come here", 0o755, 0o751, 0o2773, False),
        ("they cannot pass the root", 0o750, 0o751, 0o2773, True),
        ("they cannot pass the kind", 0o755, 0o750, 0o2773, True),
        ("they cannot write", 0o755, 0o751, 0o2771, True),
    ],
)
def test_a_folder_of_a_job_counts_where_no_other_user_writes(
    tmp_path: Path, guard: str, above: int, kind: int, mode: int, *, read: bool
) -> None:
    folder = made(made(made(tmp_path / "jobs", above) / "containers", kind) / "a", mode)
    with RingWriter(folder / "x.ring"):
        found = poll(tmp_path / "jobs")
    assert bool(found.rings) is read, guard
    assert bool(refusals(found)) is not read


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("pods", "4711"), ("pods", POD.upper()), ("pods", "a" * 31), ("slurm", "job_1"), ("slurm", "0"),
        ("slurm", "1" * 21), ("slurm", "\u0661"), ("containers", ".hidden"), ("containers", "a" * 65),
    ],
)  # fmt: skip
def test_a_forged_name_of_a_folder_makes_no_job(tmp_path: Path, kind: str, name: str) -> None:
    root = made(tmp_path / "jobs", 0o750)
    (root / kind / name).mkdir(parents=True)
    with RingWriter(root / kind / name / "x.ring"):
        found = poll(root)
    assert found.rings == ()
    assert [one.why.detail for one in found.refused] == [f"not the name of a {folders.KINDS[kind][0]}"]


def test_a_link_to_the_folder_of_another_job_is_refused(root: Path) -> None:
    (root / "pods" / POD).mkdir()
    (root / "pods" / SECOND).symlink_to(root / "pods" / POD)
    with RingWriter(root / "pods" / POD / "x.ring"):
        found = poll(root)
    assert owners(found) == {f"pods/{POD}/x.ring": f"pod:{POD}"}
    assert refusals(found).keys() == {f"pods/{SECOND}"}


def test_a_kind_that_is_a_link_or_a_file_is_refused(tmp_path: Path) -> None:
    root = made(tmp_path / "jobs", 0o750)
    (root / "elsewhere" / POD).mkdir(parents=True)
    (root / "pods").symlink_to(root / "elsewhere")
    (root / "slurm").touch()
    with RingWriter(root / "elsewhere" / POD / "x.ring"):
        found = poll(root)
    assert found.rings == ()
    assert {"pods", "slurm"} <= refusals(found).keys()


def test_of_more_folders_than_are_looked_into_it_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "FOLDERS", 1)
    with ExitStack() as writers:
        for pod in (POD, SECOND):
            (root / "pods" / pod).mkdir()
            writers.enter_context(RingWriter(root / "pods" / pod / "x.ring"))
        found = poll(root)
    # The kernel lists folders in an order of its own.
    assert owners(found) in [{f"pods/{pod}/x.ring": f"pod:{pod}"} for pod in (POD, SECOND)]
    assert refusals(found) == {"pods/...": "1 more folders than are looked into"}


@needs_root
def test_hundreds_of_rings_of_hundreds_of_users_take_nothing_from_an_honest_job(root: Path) -> None:
    """A container with the right to give files away fills its folder with rings of every user."""
    header = RingWriter(root / "x").header()
    for pod in (POD, SECOND):
        (root / "pods" / pod).mkdir()
    for number in range(600):
        path = root / "pods" / SECOND / f"{number:03}.ring"
        path.write_bytes(header)
        os.truncate(path, RING_BYTES)
        os.chown(path, 50_000 + number, -1)
    with ExitStack() as writers:
        honest = [writers.enter_context(RingWriter(root / "pods" / POD / f"z{n}.ring")) for n in range(64)]
        for ring in honest:
            ring.put(Written())
        found = poll(root)
    taken = [one.ring.owner for one in found.rings]
    assert (taken.count(f"pod:{POD}"), len(taken)) == (64, rings.RINGS)
    assert all(one.calls for one in found.rings if one.ring.owner == f"pod:{POD}")
    assert {one.why.detail for one in found.refused[:-1]} == {f"one ring too many of pod:{SECOND}"}


@needs_root
def test_where_no_file_is_free_it_is_said(tmp_path: Path) -> None:
    """Empty files take no room, and no ring can be made beside them."""
    root = made(tmp_path / "jobs", 0o750)
    told = run_mounted(f"""
        mount -t tmpfs -o nr_inodes=16,mode=0750 rings {root}
        for number in $(seq {{fill}}); do touch {root}/$number.ring 2>/dev/null || true; done
        {sys.executable} -c 'from wirewatch.jobs.tap.rings import FileRings
for one in FileRings("{root}").poll({{{{}}}}).refused: print(one.name, one.why)'
    """)
    assert told(8) == []
    assert told(20) == [". exhausted: no other file can be made, and so no ring: none is free"]


@needs_root
def test_where_no_ring_has_room_it_is_said_who_holds_most(tmp_path: Path) -> None:
    """In a namespace of mounts of its own, with a tmpfs that one pod fills."""
    root = made(tmp_path / "jobs", 0o750)
    told = run_mounted(f"""
        mount -t tmpfs -o size=1m,mode=0750 rings {root}
        mkdir -p {root}/pods/{POD} {root}/pods/{SECOND}
        echo small > {root}/pods/{POD}/x
        head -c {{fill}} /dev/zero > {root}/pods/{SECOND}/y
        {sys.executable} -c 'from wirewatch.jobs.tap.rings import FileRings
for one in FileRings("{root}").poll({{{{}}}}).refused: print(one.name, one.why)'
    """)
    assert told(1 << 19) == []
    assert told(900 << 10) == [
        f"pods/{SECOND}/ exhausted: no room for another ring, most is held here: 900 KiB"
    ]


def run_mounted(script: str) -> Callable[[int], list[str]]:
    def run(fill: int) -> list[str]:
        words = ["unshare", "--mount", "sh", "-ec", script.format(fill=fill)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if "bytes; a ring has" not in line]

    return run


@needs_root
def test_users_of_the_shared_level_share_what_one_job_gets(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "RINGS", 8)
    (root / "pods" / POD).mkdir()
    with ExitStack() as writers:
        for user, many in ((1, 6), (2, 1), (3, 1), (4, 1)):
            for number in range(many):
                path = root / f"{user}-{number}.ring"
                writers.enter_context(RingWriter(path))
                os.chown(path, user, -1)
        for number in range(6):
            writers.enter_context(RingWriter(root / "pods" / POD / f"{number}.ring"))
        found = poll(root)
    read = [one.ring.owner or one.ring.uid for one in found.rings]
    assert {one: read.count(one) for one in read} == {f"pod:{POD}": 4, 1: 1, 2: 1, 3: 1, 4: 1}


def test_records_and_open_files_are_shared_among_jobs_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "RECORDS_IN_ALL", 20)
    monkeypatch.setattr(rings, "OPEN", 3)
    with ExitStack() as writers, closing(FileRings(root)) as port:
        for pod, many, records in ((POD, 1, 8), (SECOND, 5, 30)):
            (root / "pods" / pod).mkdir()
            for number in range(many):
                ring = writers.enter_context(RingWriter(root / "pods" / pod / f"{number}.ring"))
                for place in range(records):
                    ring.put(later(Written(), place))
        found = port.poll({})
        assert isinstance(found, RingsReading)
        assert [len(one.calls) for one in found.rings] == [8, 3, 3, 2, 2, 2]
        assert [one.missed for one in found.rings] == [0, 27, 27, 28, 28, 28]
        assert sorted(vars(port)["_open"]) == [
            f"pods/{POD}/0.ring", f"pods/{SECOND}/0.ring", f"pods/{SECOND}/1.ring"
        ]  # fmt: skip


@settings(
    max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.dictionaries(st.sampled_from([POD, SECOND, "a" * 32]), st.integers(1, 6), min_size=1), st.data())
def test_which_rings_are_read_depends_on_no_order_of_names(
    tmp_path_factory: pytest.TempPathFactory, many: Mapping[str, int], data: st.DataObject
) -> None:
    files = [(pod, n) for pod, count in many.items() for n in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rings, "RINGS", 5)
        counts = []
        for order in (files, data.draw(st.permutations(files))):
            root = made(tmp_path_factory.mktemp("rings") / "jobs", 0o750)
            for pod, number in order:
                (root / "pods" / pod).mkdir(parents=True, exist_ok=True)
                with RingWriter(root / "pods" / pod / f"{number}.ring"):
                    pass
            counts.append([one.ring.name for one in poll(root).rings])
    assert counts[0] == counts[1]
    assert len(counts[0]) == min(5, len(files))


@needs_root
@pytest.mark.parametrize(
    ("guard", "mode", "group", "goes"),
    [
        ("the group of the agent may write", 0o2770, AGENTS, True),
        ("it may not", 0o2750, AGENTS, False),
        ("the group is another one", 0o2770, OTHER + 1, False),
        ("the sticky bit keeps others' files", 0o3770, AGENTS, False),
    ],
)
def test_a_dead_ring_in_the_folder_of_a_job_is_removed_by_the_agents_group(
    guard: str, mode: int, group: int, *, goes: bool
) -> None:
    ticks, before = Ticks(), os.getgroups()
    with open_folder() as root:
        folder = root / "slurm" / "4711"
        folder.mkdir(parents=True)
        with RingWriter(folder / "x.ring"):
            pass
        os.chown(folder, 50_000, group)
        os.chown(folder / "x.ring", 50_000, AGENTS)
        folder.chmod(mode | 0o005)
        os.setgroups([AGENTS])
        os.seteuid(OTHER)
        try:
            with closing(FileRings(root, ticks)) as port:
                for _ in range(2):
                    assert isinstance(port.poll({}), RingsReading)
                    ticks.seconds += rings.KEPT
        finally:
            os.seteuid(0)
            os.setgroups(before)
        assert (folder / "x.ring").exists() is not goes, guard


class Machine:
    """A /proc with the processes of some pods."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "self/ns").mkdir(parents=True)
        (path / "self/ns/pid").touch()
        self.inode = (path / "self/ns/pid").stat().st_ino
        self.process(1, "0::/init.scope\n")

    def process(self, pid: int, cgroup: str) -> None:
        (self.path / str(pid)).mkdir()
        (self.path / str(pid) / "cgroup").write_text(cgroup)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path / "proc")
    monkeypatch.setattr(folders, "INITIAL", made.inode)
    return made


def of_pod(uid: str) -> str:
    return f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{'0' * 64}.scope\n"


def hours(root: Path, machine: Machine, *steps: float) -> None:
    ticks = Ticks()
    with closing(FileRings(root, ticks, machine.path)) as port:
        for seconds in (0.0, *steps):
            ticks.seconds += seconds
            assert isinstance(port.poll({}), RingsReading)


def test_the_folder_of_a_pod_that_is_gone_is_removed_with_what_is_left_in_it(
    root: Path, machine: Machine
) -> None:
    (root / "pods" / POD / "below").mkdir(parents=True)
    (root / "pods" / POD / "junk").write_bytes(b"x" * 4096)
    machine.process(7, of_pod(SECOND))
    hours(root, machine, folders.GONE - 1)
    assert (root / "pods" / POD).exists()
    hours(root, machine, folders.GONE)
    assert not (root / "pods" / POD).exists()


@pytest.mark.parametrize(
    "guard",
    ["its pod runs", "it has a ring", "another namespace", "hidden processes"],
)
def test_the_folder_of_a_pod_that_may_be_there_stays(
    root: Path, machine: Machine, guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = root / "pods" / POD
    folder.mkdir()
    with ExitStack() as writers:
        if guard == "its pod runs":
            machine.process(7, of_pod(POD))
        elif guard == "it has a ring":
            writers.enter_context(RingWriter(folder / "x.ring"))
        elif guard == "another namespace":
            monkeypatch.setattr(folders, "INITIAL", machine.inode + 1)
        elif guard == "hidden processes":
            shutil.rmtree(machine.path / "1")
        hours(root, machine, folders.GONE, folders.GONE)
    assert folder.exists(), guard


def test_an_hour_without_rings_begins_anew_with_each_ring(root: Path, machine: Machine) -> None:
    folder, ticks = root / "pods" / POD, Ticks()
    folder.mkdir()
    with closing(FileRings(root, ticks, machine.path)) as port:
        port.poll({})
        ticks.seconds += folders.GONE - 1
        with RingWriter(folder / "x.ring") as ring:
            port.poll({})
            ring.path.unlink()
        for seconds in (1, 1, folders.GONE - 1):
            ticks.seconds += seconds
            port.poll({})
            assert folder.exists()
        ticks.seconds += 1
        port.poll({})
        assert not folder.exists()


def test_folders_of_slurm_and_of_containers_are_left_to_those_who_made_them(
    root: Path, machine: Machine
) -> None:
    for place in ("slurm/4711", "containers/a"):
        (root / place).mkdir(parents=True)
    hours(root, machine, folders.GONE, folders.GONE)
    assert (root / "slurm/4711").exists()
    assert (root / "containers/a").exists()


def test_the_owners_on_this_machine_are_those_of_its_processes(machine: Machine) -> None:
    machine.process(7, of_pod(POD))
    (machine.path / "8").mkdir()  # it ends meanwhile
    assert owners_here(machine.path) == frozenset({f"pod:{POD}"})
