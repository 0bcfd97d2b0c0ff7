"""baseline.json comes back as it was, or is put aside when it is not ours; the store waits for no disk."""

import json
import logging
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.core.strategies import JSON
from tests.node.verdict.drift.drawn import BOXES, bridged, switched
from tests.node.verdict.drift.test_diff_properties import OMISSIONS, without
from tests.node.verdict.drift.test_diff_recordings import recorded
from tests.patience import HANGS
from tests.support import StillClock
from wirewatch.core.types import OperatorNote
from wirewatch.daemon import baselines
from wirewatch.daemon.baselines import (
    VERSION,
    BaselineStore,
    LoadedBaseline,
    foreign,
    read_baseline,
    save_baseline,
)
from wirewatch.daemon.persistence import LIMIT, Aside, put_aside
from wirewatch.verdict.drift.baseline import Accepted, Baseline
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.diff import diff
from wirewatch.verdict.drift.wiring import Graph, identity

AT = 1_795_223_090.0
RECORDINGS = [
    "demo-dgx-h200", "h100x2-jobs", "h200x1-idle", "h200x1-traffic", "h200x2-idle", "h200x4-idle",
    "h200x4-traffic", "h200x8",
]  # fmt: skip
WORD = OperatorNote("ann", "as it was delivered", AT - 60.0)
CHANGE = Accepted("nic_firmware", "mlx5", "28.41", "28.42", "mlx5_0: firmware 28.41 -> 28.42", WORD)
BASELINE = Baseline(graph_of(switched().build()), WORD, "accepted", (CHANGE,))
OTHER = Baseline(graph_of(bridged().build()), WORD, "learned")
ENDLESS = "a number that is not finite"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "baseline.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("baselines")


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.corrupt-*"))


def returned(path: Path, baseline: Baseline) -> Baseline:
    assert save_baseline(path, baseline, AT) == ""
    loaded = read_baseline(path, AT)
    assert loaded.trouble == ""
    assert loaded.baseline is not None
    return loaded.baseline


# What was saved comes back


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_recorded_node_comes_back(name: str, path: Path) -> None:
    baseline = Baseline(recorded(name), WORD, "learned", (CHANGE,))
    # What is not compared, as numbers and addresses, must come back as well.
    assert repr(returned(path, baseline)) == repr(baseline)
    assert list(path.parent.iterdir()) == [path]


def test_all_bundled_recordings_are_tried() -> None:
    import wirewatch  # noqa: PLC0415

    there = Path(wirewatch.__file__).parent / "recordings"
    assert sorted(one.name for one in there.iterdir() if one.is_dir()) == RECORDINGS


TEXT = st.text(max_size=12)
WORDS = st.builds(OperatorNote, TEXT, TEXT, st.floats(allow_nan=False, allow_infinity=False))
ACCEPTED = st.builds(Accepted, TEXT, TEXT, TEXT, TEXT, TEXT, WORDS)
GRAPHS = st.builds(
    lambda make, omissions: graph_of(without(make, omissions)), st.sampled_from(BOXES), OMISSIONS
)
BASELINES = st.builds(
    Baseline, GRAPHS, WORDS, st.sampled_from(["learned", "accepted"]), st.lists(ACCEPTED).map(tuple)
)


@settings(max_examples=examples(50))
@given(BASELINES)
def test_every_baseline_comes_back(folder: Path, baseline: Baseline) -> None:
    assert repr(returned(folder / "any.json", baseline)) == repr(baseline)


def test_words_that_are_no_unicode_keep_nothing_from_being_written(path: Path) -> None:
    baseline = replace(BASELINE, said=OperatorNote("ann\ud83d", "\udcff", AT))
    assert returned(path, baseline) == replace(BASELINE, said=OperatorNote("ann?", "?", AT))


def test_a_person_can_read_it(path: Path) -> None:
    save_baseline(path, BASELINE, AT)
    told = json.loads(path.read_text())
    assert (told["version"], told["at"], told["node"]) == (VERSION, AT, identity(BASELINE.graph))
    assert told["baseline"]["said"] == {"by": "ann", "why": "as it was delivered", "at": AT - 60.0}
    assert len(told["baseline"]["graph"]["gpus"]) == 8


def test_a_node_that_is_not_known_whole_has_no_name(path: Path) -> None:
    save_baseline(path, replace(BASELINE, graph=recorded("h200x8")), AT)
    assert json.loads(path.read_text())["node"] is None


def test_no_file_is_no_trouble(path: Path) -> None:
    assert read_baseline(path, AT) == LoadedBaseline(None, "")
    path.symlink_to(path.parent / "nowhere")
    assert read_baseline(path, AT) == LoadedBaseline(None, "")
    assert returned(path, BASELINE) == BASELINE


def test_keys_that_a_later_agent_adds_are_no_harm(path: Path) -> None:
    path.write_bytes(changed(lambda told: told["baseline"].update(colour="red")))
    assert read_baseline(path, AT).baseline == BASELINE


# Files that are not ours


def _saved() -> bytes:
    with TemporaryDirectory() as place:
        path = Path(place) / "baseline.json"
        assert save_baseline(path, BASELINE, AT) == ""
        return path.read_bytes()


SAVED = _saved()


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    told = json.loads(SAVED)
    change(told)
    return json.dumps(told).encode()


def graph(**values: object) -> bytes:
    return changed(lambda told: told["baseline"]["graph"].update(values))


def gpu(**values: object) -> bytes:
    return changed(lambda told: told["baseline"]["graph"]["gpus"][3].update(values))


NOT_OURS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "EOF while parsing"),
    "zeros": (bytes(4096), "Invalid JSON"),
    "no Unicode": (b'{"version": "\xff\xfe"}', "Invalid JSON"),
    "a list": (b"[]", "Input should be"),
    "another's": (b'{"hello": 1}', "version: Field required"),
    "too deep": (b"[" * 100_000, "recursion limit exceeded"),
    "two": (SAVED + SAVED, "trailing characters"),
    "newer": (b'{"version": 2, "graph": []}', "version 2, this agent knows 1"),
    "older": (changed(lambda told: told.update(version=0)), "version 0, this agent knows 1"),
    "version in words": (changed(lambda told: told.update(version="1")), "version: Input should be"),
    "version of many digits": (b'{"version": ' + b"9" * 4000 + b"}", "version: Input should be less than"),
    "no graph": (changed(lambda told: told["baseline"].pop("graph")), "baseline.graph: Field required"),
    "an origin of later": (changed(lambda told: told["baseline"].update(origin="given")), "baseline.origin"),
    "index in words": (gpu(index="3"), "baseline.graph.gpus.3.index"),
    "half a GPU": (gpu(index=3.5), "baseline.graph.gpus.3.index"),
    "something unknown of later": (graph(unknown=[{"part": "", "what": "colour"}]), "graph.unknown.0.what"),
    "at no time": (changed(lambda told: told.update(at=float("nan"))), ENDLESS),
    "said never": (changed(lambda told: told["baseline"]["said"].update(at=1e999)), ENDLESS),
    "accepted never": (
        changed(lambda told: told["baseline"]["accepted"][0]["said"].update(at=-1e999)), ENDLESS
    ),
    "a GPU in no island": (graph(islands=[]), "a GPU that is in no island"),
    "a path that is none": (
        changed(lambda told: told["baseline"]["graph"]["nics"][2]["paths"][1].update(path="PIX2")),
        "an unknown PCIe path",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_OURS)
def test_what_cannot_be_understood_is_put_aside_and_named(
    name: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content, says = NOT_OURS[name]
    path.write_bytes(content)
    loaded = read_baseline(path, AT)
    (kept,) = aside(path)
    assert kept.read_bytes() == content
    assert list(path.parent.iterdir()) == [kept]
    assert loaded.baseline is None
    assert says in loaded.trouble
    assert loaded.trouble.startswith(f"{path}: ")
    assert loaded.trouble.endswith(f"; kept as {kept}")
    assert loaded.trouble in caplog.text
    assert read_baseline(path, AT) == LoadedBaseline(None, "")


def test_a_file_that_is_too_large_is_not_read_whole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LIMIT + 1)
    assert "larger than 16 MiB" in read_baseline(path, AT).trouble
    assert aside(path)[0].stat().st_size == LIMIT + 1


def test_a_folder_in_its_place_is_put_aside(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("kept")
    assert "Is a directory" in read_baseline(path, AT).trouble
    assert (aside(path)[0] / "inside").read_text() == "kept"


def test_a_pipe_in_its_place_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    assert "not a file" in read_baseline(path, AT).trouble
    assert aside(path)[0].is_fifo()


def test_a_name_that_is_taken_is_not_overwritten(path: Path) -> None:
    nowhere = path.with_name(f"baseline.json.corrupt-{int(AT)}")
    nowhere.symlink_to(path.parent / "nowhere")
    for content in (b"first", b"second", b"third"):
        path.write_bytes(content)
        read_baseline(path, AT)
    assert nowhere.is_symlink()
    assert [one.read_bytes() for one in aside(path)[1:]] == [b"first", b"second", b"third"]


def test_when_all_names_are_taken_the_file_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "AGAIN", 0.02)
    for number in range(1000):
        path.with_name(f"baseline.json.corrupt-{int(AT) + number}").touch()
    path.write_bytes(b"last")
    assert read_baseline(path, AT).trouble.endswith(
        "; it cannot be moved out of the way: 1000 names are taken"
    )
    assert path.read_bytes() == b"last"
    clock = Counting()
    store = BaselineStore(path, clock, read_baseline(path, AT))
    put(store, BASELINE)
    assert until(lambda: clock.asked > 3)
    assert path.read_bytes() == b"last"
    path.with_name(f"baseline.json.corrupt-{int(AT)}").unlink()
    assert store.flush(10.0)
    assert read_baseline(path, AT).baseline == BASELINE
    assert path.with_name(f"baseline.json.corrupt-{int(AT)}").read_bytes() == b"last"


def test_reading_moves_nothing(path: Path) -> None:
    path.write_bytes(b"garbage")
    assert read_baseline(path).trouble.startswith(f"{path}: Invalid JSON")
    assert list(path.parent.iterdir()) == [path]


AS_NOBODY = """
import os, sys
from pathlib import Path
from wirewatch.daemon.baselines import read_baseline
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(read_baseline(Path(sys.argv[1]), float(sys.argv[2])).trouble)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="takes root, who may become nobody")
def test_a_file_that_may_not_be_read_is_named_and_left() -> None:
    with TemporaryDirectory() as place:
        path = Path(place) / "baseline.json"
        save_baseline(path, BASELINE, AT)
        path.chmod(0o600)
        path.parent.chmod(0o755)
        denied = "Permission denied"
        assert run(AS_NOBODY, str(path), str(AT)).stdout == (
            f"{path}: {denied}; it cannot be moved out of the way: {denied}\n"
        )
        assert read_baseline(path, AT).baseline == BASELINE


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def checked(place: Path, content: bytes) -> None:
    """The content is a baseline that `save` writes again, or is kept under another name."""
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    path = place / "baseline.json"
    path.write_bytes(content)
    loaded = read_baseline(path, AT)
    (left,) = place.iterdir()
    assert left.read_bytes() == content
    assert (left == path) == (loaded.baseline is not None) == (loaded.trouble == "")
    assert "\n" not in loaded.trouble
    if loaded.baseline is not None:
        assert repr(returned(path, loaded.baseline)) == repr(loaded.baseline)
        identity(loaded.baseline.graph)
        diff(loaded.baseline.graph, BASELINE.graph)
        diff(BASELINE.graph, loaded.baseline.graph)


@settings(max_examples=examples(50))
@given(st.integers(0, len(SAVED) - 1))
def test_cut_short_anywhere_it_is_put_aside(folder: Path, length: int) -> None:
    checked(folder / "cut", SAVED[:length])
    assert aside(folder / "cut" / "baseline.json")


@settings(max_examples=examples(100))
@given(
    st.binary(max_size=60)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.tuples(st.integers(0, len(SAVED) - 1), st.integers(0, 255)).map(
        lambda one: SAVED[: one[0]] + bytes([one[1]]) + SAVED[one[0] + 1 :]
    )
)
def test_no_content_raises_or_is_lost(folder: Path, content: bytes) -> None:
    checked(folder / "bytes", content)


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*here, key)
        yield from places(one, (*here, key))


PLACES = list(places(json.loads(SAVED)))
GONE = object()
VALUES = JSON | st.sampled_from([GONE, "", [], None, "PIX", "switch", "unknown", 0, -1, 10**400, "NUMA node"])


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_no_edit_raises_or_is_lost(folder: Path, edits: list[tuple[tuple[Any, ...], object]]) -> None:
    """Edits by hand that leave the file well formed; what is taken for a baseline can be compared."""
    told = json.loads(SAVED)
    for place, value in edits:
        inner = told
        try:
            for key in place[:-1]:
                inner = inner[key]
            if value is GONE:
                del inner[place[-1]]
            else:
                inner[place[-1]] = value
        except (LookupError, TypeError):
            continue
    checked(folder / "edits", json.dumps(told).encode())


# Writing


@pytest.mark.parametrize(
    ("baseline", "says"),
    [
        (replace(BASELINE, said=OperatorNote("", "", math.inf)), ENDLESS),
        (replace(BASELINE, accepted=(replace(CHANGE, said=OperatorNote("", "", math.nan)),)), ENDLESS),
        (replace(BASELINE, graph=replace(BASELINE.graph, islands=())), "a GPU that is in no island"),
        (replace(BASELINE, said=OperatorNote("", "a" * LIMIT, 0.0)), "larger than 16 MiB"),
    ],
)
def test_what_would_not_be_read_again_is_not_written(baseline: Baseline, says: str, path: Path) -> None:
    save_baseline(path, BASELINE, AT)
    assert save_baseline(path, baseline, AT) == f"{path}: not written: {says}"
    assert read_baseline(path, AT).baseline == BASELINE


CRASHES = {
    "in the middle of the file": """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
""",
    "before it takes its place": """
sys.addaudithook(lambda event, _: event == "os.rename" and os.kill(os.getpid(), signal.SIGKILL))
""",
}
IMPORTS = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from wirewatch.daemon.baselines import read_baseline, save_baseline
baseline = read_baseline(Path(sys.argv[1])).baseline
"""
SAVE_LESS = """
print(save_baseline(Path(sys.argv[1]), replace(baseline, accepted=()), float(sys.argv[2])))
"""


@pytest.mark.parametrize("when", CRASHES)
def test_a_crash_leaves_the_old_file(when: str, path: Path) -> None:
    save_baseline(path, BASELINE, AT)
    done = run(IMPORTS + CRASHES[when] + SAVE_LESS, str(path), str(AT))
    assert (done.returncode < 0, done.stdout) == (True, "")
    assert read_baseline(path, AT).baseline == BASELINE
    assert returned(path, OTHER) == OTHER
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_may_not_be_so_large_is_reported_and_the_old_one_left(path: Path) -> None:
    save_baseline(path, BASELINE, AT)
    limit = CRASHES["in the middle of the file"].replace("SIG_DFL", "SIG_IGN")
    done = run(IMPORTS + limit + SAVE_LESS, str(path), str(AT))
    assert done.stdout == f"{path}: File too large\n"
    assert list(path.parent.iterdir()) == [path]
    assert read_baseline(path, AT).baseline == BASELINE


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "none" / "baseline.json"
    assert save_baseline(path, BASELINE, AT) == f"{path}: No such file or directory"
    assert read_baseline(path, AT) == LoadedBaseline(None, "")


# Whose it is


def test_another_nodes_baseline_is_foreign() -> None:
    ours = recorded("h200x4-idle")
    theirs = replace(ours, gpus=tuple(replace(one, uuid=f"GPU-{n:04d}") for n, one in enumerate(ours.gpus)))
    assert foreign(Baseline(theirs, WORD, "learned"), ours) == (
        "its GPUs are none of this node's: ...0000, ...0001, ...0002, ...0003"
    )


@pytest.mark.parametrize("count", [1, 3, 8])
def test_with_one_gpu_in_common_it_is_this_nodes(count: int) -> None:
    some = Baseline(replace(BASELINE.graph, gpus=BASELINE.graph.gpus[-count:]), WORD, "learned")
    assert foreign(some, BASELINE.graph) == ""
    assert foreign(BASELINE, some.graph) == ""


def nameless(one: Graph) -> Graph:
    return replace(one, gpus=tuple(replace(gpu, uuid="") for gpu in one.gpus))


def test_without_names_nothing_is_said() -> None:
    renamed = replace(
        OTHER.graph, gpus=tuple(replace(gpu, uuid=f"other-{gpu.uuid}") for gpu in OTHER.graph.gpus)
    )
    assert foreign(OTHER, renamed) != ""
    assert foreign(OTHER, nameless(renamed)) == ""
    assert foreign(replace(OTHER, graph=nameless(OTHER.graph)), renamed) == ""
    assert foreign(OTHER, replace(renamed, gpus=())) == ""


# The store


def until(met: Callable[[], bool], seconds: float = HANGS) -> bool:
    end = time.monotonic() + seconds
    while not met():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def held(store: BaselineStore) -> tuple[Baseline | None, str]:
    return store.baseline, store.trouble


def written(path: Path) -> tuple[int, int]:
    """What changes when a file is written again, and not when it is read."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def put(store: BaselineStore, baseline: Baseline) -> None:
    """In the place of whatever holds."""
    assert store.put(baseline, store.baseline)


def reject(store: BaselineStore, trouble: str) -> None:
    """Whatever holds."""
    if store.baseline is not None:
        store.reject(store.baseline, trouble)


def test_what_is_put_holds_and_is_written(path: Path) -> None:
    store = BaselineStore(path, StillClock())
    assert held(store) == (None, "")
    put(store, BASELINE)
    assert store.baseline is BASELINE
    assert store.flush(10.0)
    assert read_baseline(path, AT).baseline == BASELINE
    put(store, OTHER)
    assert store.flush(10.0)
    assert read_baseline(path, AT).baseline == OTHER
    assert list(path.parent.iterdir()) == [path]


def test_what_was_loaded_holds_and_is_not_written_again(path: Path) -> None:
    save_baseline(path, BASELINE, AT)
    before = written(path)
    store = BaselineStore(path, StillClock(), read_baseline(path, AT))
    assert held(store) == (BASELINE, "")
    assert store.flush(0.0)
    assert written(path) == before


def test_trouble_stands_until_something_is_put(path: Path) -> None:
    path.write_bytes(b"garbage")
    store = BaselineStore(path, StillClock(), read_baseline(path, AT))
    assert (store.baseline, "garbage" in store.trouble) == (None, False)
    assert store.trouble.startswith(f"{path}: Invalid JSON")
    put(store, BASELINE)
    assert held(store) == (BASELINE, "")
    assert store.flush(10.0)
    assert read_baseline(path, AT).baseline == BASELINE
    assert aside(path)[0].read_bytes() == b"garbage"


def test_what_could_not_be_moved_at_first_is_not_overwritten(path: Path) -> None:
    path.write_bytes(b"garbage")
    store = BaselineStore(path, StillClock(), LoadedBaseline(None, "the file could not be moved"))
    put(store, BASELINE)
    assert store.flush(10.0)
    assert aside(path)[0].read_bytes() == b"garbage"
    assert read_baseline(path, AT).baseline == BASELINE
    assert held(store) == (BASELINE, "")


def test_another_nodes_file_is_put_aside(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_baseline(path, BASELINE, AT)
    content = path.read_bytes()
    store = BaselineStore(path, StillClock(), read_baseline(path, AT))
    reject(store, "it is another node's")
    assert store.baseline is None
    assert store.flush(10.0)
    (kept,) = path.parent.iterdir()
    assert kept.name == f"baseline.json.corrupt-{int(AT)}"
    assert kept.read_bytes() == content
    assert store.trouble == f"it is another node's; kept as {kept}"
    assert f"{path}: it is another node's; kept as {kept}" in caplog.text
    reject(store, "it is another node's")
    assert store.flush(10.0)
    assert store.trouble == f"it is another node's; kept as {kept}"
    put(store, OTHER)
    assert store.flush(10.0)
    assert (store.trouble, read_baseline(path, AT).baseline) == ("", OTHER)
    assert kept.read_bytes() == content


def test_what_is_put_at_once_after_a_rejection_is_written_beside_it(path: Path) -> None:
    for number in range(20):
        save_baseline(path, BASELINE, AT)
        content = path.read_bytes()
        store = BaselineStore(path, StillClock(), read_baseline(path, AT))
        reject(store, "it is another node's")
        put(store, OTHER)
        assert held(store) == (OTHER, "")
        assert store.flush(10.0)
        assert read_baseline(path, AT).baseline == OTHER
        assert [one.read_bytes() for one in aside(path)] == [content] * (number + 1)


def test_a_node_without_state_writes_nothing(tmp_path: Path) -> None:
    store = BaselineStore(None, StillClock(), LoadedBaseline(BASELINE))
    put(store, OTHER)
    assert store.baseline is OTHER
    reject(store, "it is another node's")
    assert held(store) == (None, "it is another node's")
    assert store.flush(0.0)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_is_logged_once_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(baselines, "AGAIN", 0.02)
    path = tmp_path / "late" / "baseline.json"
    clock = Counting()
    store = BaselineStore(path, clock)
    put(store, OTHER)
    put(store, BASELINE)
    assert until(lambda: clock.asked > 5)
    assert not store.flush(0.0)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: No such file or directory: the accepted topology would be lost with a restart"
    ]
    path.parent.mkdir()
    assert store.flush(10.0)
    assert [record.getMessage() for record in caplog.records][1:] == [f"{path} is written again"]
    assert read_baseline(path, AT).baseline == BASELINE
    put(store, OTHER)
    assert store.flush(10.0)
    assert len(caplog.records) == 2


class Counting(StillClock):
    """Counts how often it is asked: once for each time that something is written."""

    asked = 0

    def now(self) -> float:
        self.asked += 1
        return super().now()


def test_after_a_failure_what_is_new_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is not new only after a while."""
    monkeypatch.setattr(baselines, "AGAIN", 3600.0)
    path, clock = tmp_path / "late" / "baseline.json", Counting()
    store = BaselineStore(path, clock)
    put(store, OTHER)
    assert until(lambda: store._wrong != "")  # noqa: SLF001
    path.parent.mkdir()
    assert not store.flush(0.05)
    assert clock.asked == 1
    put(store, BASELINE)
    assert store.flush(HANGS)
    assert read_baseline(path, AT).baseline == BASELINE


def test_a_file_that_is_rejected_while_another_is_moved_is_moved_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_baseline(path, BASELINE, AT)
    store, moved = BaselineStore(path, StillClock(), read_baseline(path, AT)), list[Path]()

    def move(place: Path, at: float) -> Aside:
        moved.append(place)
        if len(moved) == 1:
            put(store, OTHER)
            reject(store, "it is a third node's")
        return put_aside(place, at)

    monkeypatch.setattr(baselines, "put_aside", move)
    reject(store, "it is another node's")
    assert store.flush(HANGS)
    assert moved == [path, path]
    assert store.trouble == "it is a third node's"


def test_a_disk_that_hangs_holds_up_nobody(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is not taken for kept before the disk says so."""
    answers, sync = threading.Event(), os.fsync

    def hang(handle: int) -> None:
        assert answers.wait(HANGS)
        sync(handle)

    monkeypatch.setattr(os, "fsync", hang)
    store = BaselineStore(path, StillClock())
    began = time.monotonic()
    for number in range(100):
        put(store, replace(OTHER, said=OperatorNote("ann", str(number), AT)))
    reject(store, "it is another node's")
    put(store, BASELINE)
    assert held(store) == (BASELINE, "")
    assert time.monotonic() - began < HANGS
    assert not store.flush(0.05)
    assert not path.exists()
    answers.set()
    assert store.flush(10.0)
    assert read_baseline(path, AT).baseline == BASELINE


def test_any_thread_may_put_and_the_last_one_is_written(path: Path) -> None:
    store = BaselineStore(path, StillClock())
    seen: list[Baseline] = []

    def write(thread: int) -> None:
        for number in range(30):
            one = replace(OTHER, said=OperatorNote(str(thread), str(number), AT))
            while not store.put(one, store.baseline):
                pass
            held = store.baseline
            if held is not None:
                seen.append(held)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 180
    assert store.flush(10.0)
    assert read_baseline(path, AT).baseline == store.baseline
    assert aside(path) == []


def test_what_somebody_else_put_meanwhile_is_not_overwritten_nor_rejected(path: Path) -> None:
    save_baseline(path, BASELINE, AT)
    store = BaselineStore(path, StillClock(), read_baseline(path, AT))
    read = store.baseline
    assert read is not None
    assert store.put(OTHER, read)
    assert not store.put(BASELINE, read)
    store.reject(read, "it is another node's")
    assert held(store) == (OTHER, "")
    assert store.flush(10.0)
    assert read_baseline(path, AT).baseline == OTHER
    assert aside(path) == []


def test_what_is_accepted_no_more_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    store = BaselineStore(path, StillClock())
    put(store, replace(BASELINE, accepted=(CHANGE,)))
    put(store, replace(BASELINE, accepted=()))
    assert store.flush(10.0)
    assert [record.getMessage() for record in caplog.records] == [
        f"not accepted any more, since it is as before: {CHANGE.text}"
    ]


def test_no_thread_is_left_when_nothing_is_to_be_written(path: Path) -> None:
    before = set(threading.enumerate())
    store = BaselineStore(path, StillClock())
    put(store, BASELINE)
    assert store.flush(10.0)
    assert until(lambda: not set(threading.enumerate()) - before)


@settings(max_examples=examples(30))
@given(st.lists(st.sampled_from(["put", "other", "reject", "wait"]), max_size=8))
def test_whatever_is_done_the_file_is_what_holds(folder: Path, steps: list[str]) -> None:
    place = folder / "steps"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    path = place / "baseline.json"
    store = BaselineStore(path, StillClock())
    for step in steps:
        if step == "put":
            put(store, BASELINE)
        elif step == "other":
            put(store, OTHER)
        elif step == "reject":
            reject(store, "it is another node's")
        else:
            assert store.flush(10.0)
    assert store.flush(10.0)
    assert read_baseline(path, AT).baseline == store.baseline
    assert path.exists() == (store.baseline is not None)
    assert all(read_baseline(one).baseline in (BASELINE, OTHER) for one in aside(path))
