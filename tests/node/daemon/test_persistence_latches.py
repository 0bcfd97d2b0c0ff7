"""latches.json: whole or not at all, on the disk before it has its name, put aside when it is damaged."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.disks import fill, small_disk
from tests.examples import examples
from tests.node.core.strategies import JSON
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import Health, Ok, OperatorNote, Subject
from wirewatch.daemon.persistence import LIMIT, VERSION, read_ledger, save_ledger, write
from wirewatch.verdict.ledger import (
    LOST,
    Acknowledgement,
    Entry,
    Ledger,
    Stage,
    Suppression,
    VerdictPolicy,
    key_of,
)
from wirewatch.verdict.node import judge_node, judge_state
from wirewatch.verdict.orders import pick, repaired, suppress

AT = 1_795_223_090.0
PART = Subject("2", "GPU-2", "7")
WORD = OperatorNote("ann", "cable exchanged", AT - 60.0)
ENTRY = Entry(
    "nvlink.link_down", PART, "nvlink", Health.FAILED, Stage.PROBATION, "inactive; 17 links up", "drain",
    AT - 900.0, AT - 300.0, times=2, boot="boot-1", absent=120.0, probes=1, asked=True, repaired=WORD,
)  # fmt: skip
EVENT = replace(
    ENTRY, rule="xid.79", stage=Stage.LATCHED, event=AT - 500.0, repaired=None, subject=Subject(uuid="GPU-3")
)
SUPPRESSION = Suppression("pcie.width", Subject("1", "GPU-1"), Health.FAILED, AT + 3600.0, WORD)
SEEN = Acknowledgement("pcie.width", Subject("1", "GPU-1"), "pcie", Health.DEGRADED, WORD)
LEDGER = Ledger(
    "boot-1", 8, {one.key: one for one in (ENTRY, EVENT)}, {SUPPRESSION.key: SUPPRESSION},
    seen={SEEN.key: SEEN},
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "latches.json"


def lost(ledger: Ledger) -> Entry:
    """The only thing that is remembered: that everything else is lost."""
    assert list(ledger.entries) == [key_of(LOST, Subject())]
    assert ledger.suppressions == {}
    return ledger.entries[key_of(LOST, Subject())]


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.corrupt-*"))


def test_what_was_saved_is_read_again(path: Path) -> None:
    assert save_ledger(path, LEDGER, AT) == ""
    assert read_ledger(path, "boot-1", AT, own=True) == LEDGER
    assert read_ledger(path, "boot-1", AT) == LEDGER
    assert list(path.parent.iterdir()) == [path]


def test_an_acknowledgement_of_0_2_meant_repaired_stays_so_and_says_so(path: Path) -> None:
    """The keys of such a file are those of 0.2, which must be able to read the file after us, too."""
    save_ledger(path, LEDGER, AT)
    told = json.loads(path.read_text("utf-8"))
    assert [one["acked"] for one in told["entries"]] == [
        {"by": "ann", "why": "cable exchanged", "at": AT - 60.0}, None,
    ]  # fmt: skip
    for key in ("seen", "verbs"):
        del told[key]
    for one in told["entries"]:
        del one["by_ack"]
    path.write_text(json.dumps(told), "utf-8")
    ledger = read_ledger(path, "boot-1", AT, own=True)
    assert ledger.entries[ENTRY.key] == replace(ENTRY, by_ack=True)
    assert (ledger.entries[EVENT.key], ledger.seen) == (EVENT, {})
    collector = NodeState({"nvlink": Component("nvlink", None, Ok(None, AT, 1.0), applicable=True)})
    (standing,) = (one for one in judge_node(collector, ledger).standings if one.key == ENTRY.key)
    assert standing.finding.health is Health.DEGRADED
    told_by = "repaired by ann (by `ack` of wirewatch 0.2, which meant repaired): cable exchanged"
    assert told_by in standing.finding.evidence
    # Written and read again, it still says so.
    save_ledger(path, ledger, AT)
    assert read_ledger(path, "boot-1", AT, own=True) == ledger


def test_another_boot_is_known_by_its_own_name(path: Path) -> None:
    save_ledger(path, LEDGER, AT)
    ledger = read_ledger(path, "boot-2", AT, own=True)
    assert ledger.boot == "boot-2"
    assert {entry.boot for entry in ledger.entries.values()} == {"boot-1"}


def test_no_file_is_a_clean_start(path: Path) -> None:
    assert read_ledger(path, "boot-1", AT, own=True) == Ledger("boot-1")
    assert list(path.parent.iterdir()) == []


def test_seconds_that_a_clock_of_this_process_counted_are_not_kept(path: Path) -> None:
    save_ledger(path, LEDGER.with_entry(replace(ENTRY, mono=1234.5)), AT)
    assert read_ledger(path, "boot-1", AT, own=True) == LEDGER
    assert "1234.5" not in path.read_text()


def test_a_person_can_read_it(path: Path) -> None:
    save_ledger(path, LEDGER, AT)
    told = json.loads(path.read_text())
    assert (told["version"], told["boot"], told["at"], told["gpus"]) == (VERSION, "boot-1", AT, 8)
    assert told["entries"][0]["rule"] == "nvlink.link_down"
    assert told["entries"][0]["stage"] == "probation"


TEXT = st.text(max_size=12)
SUBJECTS = st.builds(Subject, TEXT, TEXT, TEXT, TEXT, TEXT)
NUMBERS = st.floats(0, 1e12)
WORDS = st.builds(OperatorNote, TEXT, TEXT, NUMBERS)
ENTRIES = st.builds(
    Entry, TEXT, SUBJECTS, TEXT, st.sampled_from(Health), st.sampled_from(Stage), TEXT, TEXT, *[NUMBERS] * 3,
    st.integers(1, 99), TEXT, NUMBERS, st.integers(0, 9), st.booleans(), st.none() | WORDS,
)  # fmt: skip
SUPPRESSIONS = st.builds(Suppression, TEXT, SUBJECTS, st.sampled_from(Health), NUMBERS, WORDS)
LEDGERS = st.builds(
    lambda gpus, entries, kept: Ledger(
        "boot-1", gpus, {e.key: e for e in entries}, {s.key: s for s in kept}
    ),
    st.integers(0, 16), st.lists(ENTRIES, max_size=4), st.lists(SUPPRESSIONS, max_size=3),
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("latches")


@settings(max_examples=examples(200))
@given(LEDGERS)
def test_every_ledger_comes_back(folder: Path, ledger: Ledger) -> None:
    assert save_ledger(folder / "any.json", ledger, AT) == ""
    assert read_ledger(folder / "any.json", "boot-1", AT, own=True) == ledger
    assert aside(folder / "any.json") == []


@settings(max_examples=examples(100))
@given(st.text(max_size=8))
def test_words_that_are_no_unicode_keep_nothing_from_being_written(folder: Path, words: str) -> None:
    text = words + "\ud83d"
    ledger = LEDGER.with_entry(replace(ENTRY, evidence=text, repaired=OperatorNote(text, text, AT)))
    assert save_ledger(folder / "odd.json", ledger, AT) == ""
    kept = read_ledger(folder / "odd.json", "boot-1", AT, own=True)
    assert kept.entries.keys() == ledger.entries.keys()
    assert kept.entries[ENTRY.key].evidence.endswith("?")


# Files that are not ours


def corrupt(path: Path, content: bytes, says: str) -> Ledger:
    """Such a file is set aside unchanged, and what came of it is a finding."""
    path.write_bytes(content)
    ledger = read_ledger(path, "boot-1", AT, own=True)
    (kept,) = aside(path)
    assert kept.read_bytes() == content
    assert not path.exists()
    evidence = lost(ledger).evidence
    assert says in evidence
    assert evidence.endswith(f"; kept as {kept}")
    return ledger


def _saved() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "latches.json"
        assert save_ledger(path, LEDGER, AT) == ""
        return path.read_bytes()


SAVED = _saved()


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    told = json.loads(SAVED)
    change(told)
    return json.dumps(told).encode()


def entry(number: int, **values: object) -> bytes:
    return changed(lambda told: told["entries"][number].update(values))


ENDLESS = "a number that is not finite"
NOT_OURS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "EOF while parsing"),
    "zeros": (bytes(4096), "Invalid JSON"),
    "no Unicode": (b'{"version": "\xff\xfe"}', "Invalid JSON"),
    "a list": (b"[]", "Input should be"),
    "a number": (b"1", "Input should be"),
    "another's": (b'{"hello": 1}', "version: Field required"),
    "too deep": (b"[" * 100_000, "recursion limit exceeded"),
    "two": (SAVED + SAVED, "trailing characters"),
    "newer": (changed(lambda told: told.update(version=VERSION + 1)), "version 2, this agent knows 1"),
    "newer, and another document": (
        b'{"version": 2, "faults": []}', "written by a newer wirewatch, version 2, this agent knows 1"
    ),
    "older": (changed(lambda told: told.update(version=0)), "version 0, this agent knows 1"),
    "a stage of later": (entry(0, stage="sleeping"), "entries.0.stage"),
    "a health of later": (entry(0, health=9), "entries.0.health"),
    "no rule": (changed(lambda told: told["entries"][1].pop("rule")), "entries.1.rule: Field required"),
    "no number": (entry(0, absent=float("nan")), ENDLESS),
    "for ever": (changed(lambda told: told["suppressions"][0].update(until=1e999)), ENDLESS),
    "acked for ever": (changed(lambda told: told["entries"][0]["acked"].update(at=1e999)), ENDLESS),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_OURS)
def test_what_cannot_be_understood_is_set_aside_and_named(name: str, path: Path) -> None:
    content, says = NOT_OURS[name]
    corrupt(path, content, says)


def test_a_file_that_is_too_large_is_not_read_whole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LIMIT + 1)
    assert "larger than 16 MiB" in lost(read_ledger(path, "boot-1", AT, own=True)).evidence
    assert aside(path)[0].stat().st_size == LIMIT + 1


def test_keys_that_a_later_agent_adds_are_no_harm(path: Path) -> None:
    path.write_bytes(entry(0, colour="red"))
    assert read_ledger(path, "boot-1", AT, own=True) == LEDGER


@settings(max_examples=examples(400))
@given(st.integers(0, len(SAVED) - 1))
def test_cut_short_anywhere_it_is_set_aside(folder: Path, length: int) -> None:
    place = folder / f"cut-{length}"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    corrupt(place / "latches.json", SAVED[:length], "")


@settings(max_examples=examples(400))
@given(
    st.binary(max_size=60)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.tuples(st.integers(0, len(SAVED) - 1), st.integers(0, 255)).map(
        lambda one: SAVED[: one[0]] + bytes([one[1]]) + SAVED[one[0] + 1 :]
    )
)
def test_no_content_raises_or_is_lost(folder: Path, content: bytes) -> None:
    place = folder / "any"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    path = place / "latches.json"
    path.write_bytes(content)
    ledger = read_ledger(path, "boot-1", AT, own=True)
    (left,) = place.iterdir()
    assert left.read_bytes() == content
    assert (left == path) != (key_of(LOST, Subject()) in ledger.entries)
    judge_node(NodeState(), ledger)
    assert save_ledger(path, ledger, AT) == ""
    assert read_ledger(path, "boot-1", AT, own=True).entries.keys() == ledger.entries.keys()


def test_a_folder_in_its_place_is_set_aside(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("kept")
    assert "Is a directory" in lost(read_ledger(path, "boot-1", AT, own=True)).evidence
    assert (aside(path)[0] / "inside").read_text() == "kept"
    assert save_ledger(path, LEDGER, AT) == ""


def test_a_link_to_nowhere_is_a_clean_start(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")
    assert read_ledger(path, "boot-1", AT, own=True) == Ledger("boot-1")
    assert save_ledger(path, LEDGER, AT) == ""
    assert read_ledger(path, "boot-1", AT, own=True) == LEDGER


def test_a_name_that_is_taken_is_not_overwritten(path: Path) -> None:
    for content in (b"first", b"second", b"third"):
        path.write_bytes(content)
        read_ledger(path, "boot-1", AT, own=True)
    assert [one.read_bytes() for one in aside(path)] == [b"first", b"second", b"third"]


def test_reading_moves_nothing(path: Path) -> None:
    path.write_bytes(b"garbage")
    evidence = lost(read_ledger(path, "boot-1", AT)).evidence
    assert f"is lost: {path}: Invalid JSON" in evidence
    assert "garbage" not in evidence
    assert list(path.parent.iterdir()) == [path]


AS_NOBODY = """
import os, sys
from pathlib import Path
from wirewatch.daemon.persistence import read_ledger, save_ledger
os.setgroups([]); os.setgid(65534); os.setuid(65534)
path, at = Path(sys.argv[1]), float(sys.argv[2])
ledger = read_ledger(path, "boot-1", at, own=True)
print([entry.evidence for entry in ledger.entries.values()])
print(save_ledger(path, ledger, at))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="takes root, who may become nobody")
def test_a_file_that_may_not_be_read_is_named() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "latches.json"
        save_ledger(path, LEDGER, AT)
        path.chmod(0o600)
        path.parent.chmod(0o755)
        evidence, saved = run(AS_NOBODY, str(path), str(AT)).stdout.splitlines()
        assert f"{path}: Permission denied" in evidence
        assert "kept as" not in evidence
        assert saved == f"{path}: Permission denied"
        assert read_ledger(path, "boot-1", AT, own=True) == LEDGER


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# That memory is lost is a finding


def test_lost_memory_is_unknown_until_an_operator_has_looked(path: Path) -> None:
    path.write_bytes(b"")
    ledger = read_ledger(path, "boot-1", AT, own=True)
    verdict = judge_node(NodeState(), ledger)
    (standing,) = verdict.standings
    assert (verdict.health, verdict.job_ready) == (Health.UNKNOWN, False)
    assert (standing.finding.rule, str(standing.finding.subject)) == (LOST, "node")
    assert standing.finding.evidence.startswith("what was remembered of faults is lost: ")
    assert "not seen" not in standing.finding.evidence
    assert standing.finding.action == (
        "look at the node, its kernel log and the file named here; once repaired: "
        f"`wirewatch findings repaired {standing.id}`"
    )
    assert save_ledger(path, ledger, AT) == ""
    again = read_ledger(path, "boot-2", AT, own=True)
    assert again == replace(ledger, boot="boot-2")
    said = OperatorNote("ann", "looked", AT)
    assert repaired(again, pick(verdict, standing.id), said, 1.0).entries == {}
    assert judge_state(NodeState(), again).ledger == again


def test_lost_memory_may_be_suppressed(path: Path) -> None:
    path.write_bytes(b"")
    ledger = read_ledger(path, "boot-1", AT, own=True)
    verdict = judge_node(NodeState(), ledger)
    said = OperatorNote("ann", "known", AT)
    one = suppress(ledger, verdict.standings[0], AT + 60.0, said, VerdictPolicy())
    assert judge_node(NodeState(), one).findings == ()


# Writing


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
SAVE_LESS = """
from wirewatch.verdict.ledger import Ledger
print(save_ledger(Path(sys.argv[1]), Ledger("boot-1"), float(sys.argv[2])))
"""
IMPORTS = """
import os, signal, sys
from pathlib import Path
from wirewatch.daemon.persistence import save_ledger
"""


@pytest.mark.parametrize("when", CRASHES)
def test_a_crash_leaves_the_old_file(when: str, path: Path) -> None:
    save_ledger(path, LEDGER, AT)
    done = run(IMPORTS + CRASHES[when] + SAVE_LESS, str(path), str(AT))
    assert (done.returncode < 0, done.stdout) == (True, "")
    assert read_ledger(path, "boot-1", AT, own=True) == LEDGER
    assert save_ledger(path, Ledger("boot-1"), AT) == ""
    assert read_ledger(path, "boot-1", AT, own=True) == Ledger("boot-1")
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_may_not_be_so_large_is_reported_and_the_old_one_left(path: Path) -> None:
    save_ledger(path, LEDGER, AT)
    limit = CRASHES["in the middle of the file"].replace("SIG_DFL", "SIG_IGN")
    done = run(IMPORTS + limit + SAVE_LESS, str(path), str(AT))
    assert done.stdout == f"{path}: File too large\n"
    assert list(path.parent.iterdir()) == [path]
    assert read_ledger(path, "boot-1", AT, own=True) == LEDGER


def test_a_full_disk_is_reported_and_loses_nothing(path: Path) -> None:
    save_ledger(path, LEDGER, AT)
    with small_disk() as disk:
        kept = disk / path.name
        kept.write_bytes(path.read_bytes())
        fill(disk)
        assert save_ledger(kept, Ledger("boot-1"), AT) == f"{kept}: {os.strerror(errno.ENOSPC)}"
        assert read_ledger(kept, "boot-1", AT, own=True) == LEDGER
        assert sorted(one.name for one in disk.iterdir()) == ["filling", path.name]


@pytest.mark.parametrize("plant", [os.mkfifo, lambda new: new.symlink_to("/dev/full")])
def test_what_lies_where_the_new_file_is_written_is_neither_waited_for_nor_followed(
    path: Path, plant: Callable[[Path], object]
) -> None:
    plant(path.with_name(f"{path.name}.new"))
    assert save_ledger(path, LEDGER, AT) == ""
    assert read_ledger(path, "boot-1", AT, own=True) == LEDGER
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "none" / "latches.json"
    assert save_ledger(path, LEDGER, AT) == f"{path}: No such file or directory"
    assert read_ledger(path, "boot-1", AT, own=True) == Ledger("boot-1")


def test_a_folder_in_the_way_of_the_new_file_is_reported(path: Path) -> None:
    save_ledger(path, LEDGER, AT)
    path.with_name("latches.json.new").mkdir()
    assert save_ledger(path, Ledger("boot-1"), AT) == f"{path}: Is a directory"
    assert read_ledger(path, "boot-1", AT, own=True) == LEDGER


def test_content_is_on_the_disk_before_it_has_its_name_and_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, sync = tmp_path / "latches.json", [], os.fsync

    def watched(handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}").readlink()
        synced.append((str(name), name.read_text() if name.is_file() else "", path.read_text()))
        sync(handle)

    path.write_text("old")
    monkeypatch.setattr(os, "fsync", watched)
    assert write(path, b"new") == ""
    assert synced == [(f"{path}.new", "new", "old"), (str(tmp_path), "", "new")]


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "latches.json"
    path.write_text("old")
    path.with_name("latches.json.new").mkdir()
    assert write(path, b"new").startswith(f"{path}: ")
    assert path.read_text() == "old"
