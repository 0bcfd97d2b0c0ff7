"""The gate without Python against `wirewatch check --cached`: one table of documents drives both."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.disks import OTHER, needs_root, open_folder
from tests.node.cli.checks import check
from tests.node.cli.gatefile import GATE, HERE, SHELLS, Gated, gate, now, verdict_of, written
from tests.node.cli.replies import Behaviour, finding, health, reply, server
from wirewatch.documents.verdictfile import VALID, Stamp, encoded, plain_ascii

STATUS = {"ok": 0, "degraded": 1, "failed": 2, "unknown": 3}
FAIL_ON = (None, "failed", "failed,unknown", "failed,unknown,degraded")
PROBE = {"at": 1.0, "age_seconds": 600.0, "fresh": True, "required": False}
OLD = {**PROBE, "age_seconds": 90_000.0, "fresh": False}


@dataclass(frozen=True)
class Row:
    """What the daemon says, and what follows: the health, and with which of FAIL_ON no job starts."""

    told: str
    health: str
    refused: tuple[str | None, ...]
    more: Mapping[str, Any]
    findings: tuple[dict[str, Any], ...] = ()

    def document(self, at: float) -> dict[str, Any]:
        """The document of `/health` at `at`, Unix seconds; those times in it that count are from then."""
        fields = dict(self.more)
        since = {key: at + fields.pop(key) for key in ("polled_at", "released_until") if key in fields}
        fail_on = fields.get("fail_on", ("failed", "unknown"))
        found = health(at, self.told, *self.findings, **fields, **since)
        return {**found, "job_ready": self.told not in fail_on}


STRICT = FAIL_ON[2:]
NOT_KNOWN = (None, *STRICT)
TABLE = {
    "healthy": Row("ok", "ok", (), {}),
    "degraded": Row("degraded", "degraded", FAIL_ON[3:], {}, (finding("degraded"),)),
    "failed": Row("failed", "failed", FAIL_ON, {}, (finding(), finding("degraded", rule="pcie.width"))),
    "unknown": Row("unknown", "unknown", NOT_KNOWN, {}, (finding("unknown"),)),
    "failed alone is refused here": Row("unknown", "unknown", STRICT, {"fail_on": ["failed"]}),
    "degraded is refused here": Row(
        "degraded", "degraded", (None, FAIL_ON[3]), {"fail_on": ["failed", "degraded"]}
    ),
    "an old probe": Row("ok", "ok", (), {"probe": OLD}),
    "no probe yet": Row("ok", "ok", (), {"probe": {**OLD, "age_seconds": None}}),
    "nothing to probe": Row("ok", "ok", (), {"probe": None, "probe_exempt": True}),
    "a fresh probe is required": Row("ok", "ok", (), {"probe": {**PROBE, "required": True}}),
    "an old probe where a fresh one is required": Row(
        "ok", "unknown", FAIL_ON, {"probe": {**OLD, "required": True}}
    ),
    "the same of a node that is failed": Row(
        "failed", "failed", FAIL_ON, {"probe": {**OLD, "required": True}}, (finding(),)
    ),
    "released": Row("ok", "unknown", NOT_KNOWN, {"released_until": 500.4}),
    "not polled for long": Row("ok", "unknown", NOT_KNOWN, {"polled_at": -100.0}),
    "a loop has stopped": Row("ok", "unknown", NOT_KNOWN, {"turning": False}),
    "suppressed": Row("ok", "ok", (), {"suppressed": [finding(stage="suppressed", suppressed_until=2e9)]}),
    "a hostile text": Row(
        "failed", "failed", FAIL_ON, {},
        (finding(evidence='a\nend 1 2\r\x00\x1b[2J"$(reboot)`id`\'; rm \u2026\u00b5\u2028', action="%s%n"),),
    ),
}  # fmt: skip


def told_now(row: Row) -> Behaviour:
    """A daemon that says so at the time of the question."""

    def behave(client: Any) -> None:
        client.recv(65536)
        body = json.dumps(row.document(time.time())).encode()
        client.sendall(reply(body, "200 OK" if row.told in {"ok", "degraded"} else "503 Unavailable"))

    return behave


@pytest.mark.parametrize("name", TABLE)
def test_both_say_the_same(tmp_path: Path, name: str) -> None:
    row = TABLE[name]
    with server(tmp_path, told_now(row)) as path:
        for fail_on in FAIL_ON:
            options = () if fail_on is None else ("--fail-on", fail_on)
            code = STATUS[row.health] if fail_on in row.refused else 0
            checked = check("--cached", "--socket", path, *options)
            assert checked.code == code, (fail_on, checked)
            line = plain_ascii(checked.line).replace(path, "/run/wirewatch/wirewatch.sock")
            assert line.startswith(row.health.upper())
            for shell in HERE:
                file = written(tmp_path / "verdict", row.document(time.time()))
                assert gate(file, *options, shell=shell) == Gated(code, line), (fail_on, shell)


@given(st.text(), st.text(), st.sampled_from(list(STATUS)))
def test_no_text_of_a_finding_changes_what_is_said(evidence: str, action: str, told: str) -> None:
    """Neither another line, nor another length: the line comes as it is, and the health with it."""
    document = health(1e9, told, finding(told, evidence=evidence, action=action))
    verdict = verdict_of(document)
    # Also where whoever made the line let everything through.
    for one in (verdict, replace(verdict, line=evidence)):
        lines = encoded(one, Stamp("b", 1.0)).decode("ascii").split("\n")
        assert len(lines) == 14
        assert lines[11] == f"line {plain_ascii(one.line)}"
        assert all(" " <= letter <= "~" for line in lines for letter in line)


Damage = Callable[[Path, bytes], object]


def replaced(old: bytes, new: bytes) -> Damage:
    def damage(file: Path, whole: bytes) -> None:
        assert old in whole
        file.write_bytes(whole.replace(old, new, 1))

    return damage


def told_at(stamp: Callable[[], Stamp]) -> Damage:
    return lambda file, _: written(file, health(1e9), stamp())


def linked(file: Path, whole: bytes) -> None:
    file.with_name("target").write_bytes(whole)
    file.symlink_to("target")


def of_two(file: Path, whole: bytes) -> None:
    """The first half of one and the second of another, of the same length."""
    other = encoded(verdict_of(health(1e9)), now(1.0))
    assert len(other) == len(whole)
    file.write_bytes(other[: len(other) // 2] + whole[len(whole) // 2 :])


DAMAGES: Mapping[str, tuple[Damage, str]] = {
    "is not there": (lambda _file, _whole: None, "there is no such file"),
    "is empty": (lambda file, _: file.write_bytes(b""), "not a whole verdict"),
    "is of zeros": (lambda file, whole: file.write_bytes(bytes(len(whole))), "not a whole verdict"),
    "has a hole": (replaced(b"job_ready yes\n", bytes(14)), "not a whole verdict"),
    "lacks a line": (replaced(b"always failed\n", b""), "not a whole verdict"),
    "has a line twice": (replaced(b"released no\n", b"released no\nreleased no\n"), "not a whole verdict"),
    "has another's end": (replaced(b"\nend ", b"\nend 1"), "not a whole verdict"),
    "goes on": (lambda file, whole: file.write_bytes(whole + b"health ok\n"), "something follows its end"),
    "goes on by a letter": (lambda file, whole: file.write_bytes(whole + b"x"), "something follows its end"),
    "is of two": (of_two, "not a whole verdict"),
    "says what its line does not": (replaced(b"line OK", b"line KO"), "its line is not that of 'ok'"),
    "contradicts itself": (replaced(b"job_ready yes", b"job_ready no"), "not a whole verdict"),
    "refuses nothing": (replaced(b"always failed", b"always nothing"), "not a whole verdict"),
    "is valid for ever": (replaced(b"valid 20", b"valid 99999999999"), "not a whole verdict"),
    "is of a later format": (replaced(b"verdict 1\n", b"verdict 2\n"), "that this gate does not know"),
    "is of another boot": (
        told_at(lambda: replace(now(), boot="another")),
        "of another boot",
    ),
    "is old": (told_at(lambda: now(VALID + 2)), "the daemon does not write it any more"),
    "is of the future": (told_at(lambda: now(-900)), "of the future"),
    "is a recording's": (lambda file, _: written(file, health(1e9), source="replay"), "not this node"),
    "is a demo's": (lambda file, _: written(file, health(1e9), source="synthetic"), "not this node"),
    "is a link": (linked, "it is a link"),
    "is a folder": (lambda file, _: file.mkdir(), "it is not a file"),
    "is a pipe": (lambda file, _: os.mkfifo(file), "it is not a file"),
    "is a word": (lambda file, _: file.write_bytes(b"OK\n"), "not a whole verdict"),
}


AGE = re.compile(r"\d+ s old")
"""Time goes on from one look to the next."""


@pytest.mark.parametrize("shell", HERE)
@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_that_is_damaged_is_never_ok(tmp_path: Path, name: str, shell: str) -> None:
    file, (damage, why) = tmp_path / "verdict", DAMAGES[name]
    damage(file, encoded(verdict_of(health(1e9)), now()))
    said, started, deferred = (
        replace(one, line=AGE.sub("so many s old", one.line))
        for one in (gate(file, *words, shell=shell) for words in ((), ("--fail-on", "failed"), ("--defer",)))
    )
    assert said.code == 3
    assert said.line.startswith(f"UNKNOWN; {file}: ")
    assert why in said.line
    assert started == Gated(0, said.line)
    assert deferred == Gated(75, said.line)


def test_no_part_of_a_file_is_ok(tmp_path: Path) -> None:
    """Cut after each of its bytes; one shell reads them all, each in a shell of its own."""
    whole = encoded(verdict_of(health(1e9)), now())
    for length in range(len(whole)):
        (tmp_path / f"{length:04d}").write_bytes(whole[:length])
    script = 'for file in "$1"/*; do (set -- --file "$file"; . "$GATE"); echo "status $?"; done'
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(tmp_path)], env={"GATE": str(GATE)}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("status ")] == ["status 3"] * len(whole)
    assert sum(line.startswith("UNKNOWN; /") and "not a whole verdict" in line for line in lines) == len(
        whole
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_not_ok(tmp_path: Path) -> None:
    file = written(tmp_path / "verdict", health(1e9))
    file.chmod(0)
    assert "it may not be read" in gate(file).line


@pytest.fixture
def shared() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@needs_root
@pytest.mark.parametrize("shell", HERE)
def test_whose_file_is_believed(shared: Path, shell: str) -> None:
    """As the daemon's socket: not another user's where everybody may place one."""
    home = shared / "run"
    home.mkdir()
    file = written(home / "verdict", health(1e9))
    assert gate(file, shell=shell).code == 0
    assert gate(file, shell=shell, user=OTHER).code == 0, "root's is believed by every user"
    file.chmod(0o600)
    assert "it may not be read" in gate(file, shell=shell, user=OTHER).line
    os.chown(file, OTHER, OTHER)
    os.chown(home, OTHER, OTHER)
    assert gate(file, shell=shell).code == 0, "the agent's, in the agent's folder"
    (shared / "link").symlink_to("run")
    assert "not believed" in gate(shared / "link" / "verdict", shell=shell).line
    for mode in (0o777, 0o1777):
        home.chmod(mode)
        assert "not believed" in gate(file, shell=shell).line
    home.chmod(0o755)
    shared.chmod(0o1777)
    assert "not believed" in gate(file, shell=shell).line


@pytest.mark.parametrize(
    ("probe", "age", "code"),
    [
        (PROBE, "1h", 0), (PROBE, "602", 0), (PROBE, "600s", 75), (PROBE, "10m", 75), (PROBE, "0", 75),
        ({**PROBE, "age_seconds": None}, "9d", 75), (None, "0", 0),
    ],
)  # fmt: skip
def test_a_probe_that_is_old_is_a_question_to_check(tmp_path: Path, probe: Any, age: str, code: int) -> None:
    file = written(tmp_path / "verdict", health(1e9, probe=probe))
    for shell in HERE:
        assert gate(file, "--defer", "--max-age", age, shell=shell).code == code
    released = written(tmp_path / "released", health(1e9, probe=probe, released_until=1e9 + 60))
    assert gate(released, "--defer", "--max-age", age).code == 3, "a node that is released is not probed"


@pytest.mark.parametrize(
    "options",
    [
        ("--max-age", "1h"), ("--defer", "--max-age", "soon"), ("--fail-on", "sick"), ("--fail-on", ""),
        ("--fail-on", "failed,"), ("--fail-on",), ("--file", "verdict"), ("--file", "/run/../x"), ("ok",),
        ("--defer", "--max-age", "010"),
    ],
)  # fmt: skip
def test_wrong_usage_is_no_answer(tmp_path: Path, options: tuple[str, ...]) -> None:
    written(tmp_path / "verdict", health(1e9))
    for shell in HERE:
        done = subprocess.run([*SHELLS[shell], GATE, *options], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (64, ""), done
        assert done.stderr.startswith("gate: ")
