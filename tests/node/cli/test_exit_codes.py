"""One table of exit codes: each command in each state of the node, the daemon and the command line."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.node.daemon.process import FAST, Daemon
from tests.processes import run_wirewatch
from tests.rows import each
from wirewatch.cli import cli, run
from wirewatch.cli.findings import LINES
from wirewatch.core.exits import Exit, exit_of
from wirewatch.core.types import Health

WHY = ("--why", "x")
WITHOUT_DAEMON = {
    ("check", "--cached"): Exit.UNKNOWN,
    ("config", "show"): Exit.OK,
    ("explain",): Exit.NO_ANSWER,
    ("findings", "ack", "d1fac7e2", *WHY): Exit.NO_ANSWER,
    ("findings", "list"): Exit.NO_ANSWER,
    ("findings", "repaired", "d1fac7e2", *WHY): Exit.NO_ANSWER,
    ("findings", "show", "d1fac7e2"): Exit.NO_ANSWER,
    ("findings", "suppress", "d1fac7e2", "--for", "1d", *WHY): Exit.NO_ANSWER,
    ("findings", "unsuppress", "d1fac7e2", *WHY): Exit.NO_ANSWER,
    ("release",): Exit.NO_ANSWER,
    ("release", "--end"): Exit.NO_ANSWER,
    ("status",): Exit.NO_ANSWER,
    ("top", "--once"): Exit.NO_ANSWER,
    ("topology", "accept", *WHY): Exit.NO_ANSWER,
    ("topology", "baseline"): Exit.NO_ANSWER,
    ("topology", "diff"): Exit.NO_ANSWER,
    ("topology", "show"): Exit.NO_ANSWER,
}
"""Each command that asks a daemon at a socket that is named, where nothing listens."""
ON_FAILED = {
    ("check",): Exit.FAILED,
    ("check", "--json"): Exit.FAILED,
    ("check", "--cached"): Exit.FAILED,
    ("explain",): Exit.USAGE,
    ("explain", "slurm:4711"): Exit.USAGE,
    ("findings", "list"): Exit.FAILED,
    ("findings", "list", "--json"): Exit.FAILED,
    ("findings", "show", "ID"): Exit.FAILED,
    ("findings", "show", "0000"): Exit.USAGE,
    ("findings", "ack", "ID", *WHY): Exit.OK,
    ("findings", "repaired", "ID", "--yes", *WHY): Exit.USAGE,
    ("findings", "suppress", "ID", "--for", "1d", *WHY): Exit.USAGE,
    ("findings", "unsuppress", "ID", *WHY): Exit.USAGE,
    ("status",): Exit.FAILED,
    ("status", "--json"): Exit.FAILED,
    ("top", "--once"): Exit.FAILED,
    ("topology", "show"): Exit.OK,
    ("topology", "baseline"): Exit.OK,
    ("topology", "accept", *WHY): Exit.USAGE,
}
"""On a node with a broken link and no job; ID is that of the finding."""
WITHOUT_DRIVER = {
    ("check", "--cached"): Exit.UNKNOWN,
    ("check",): Exit.UNKNOWN,
    ("check", "--fail-on", "failed"): Exit.OK,
    ("status",): Exit.UNKNOWN,
    ("top", "--once"): Exit.NO_ANSWER,
    ("explain",): Exit.NO_ANSWER,
    ("findings", "list"): Exit.NO_ANSWER,
    ("topology", "show"): Exit.NO_ANSWER,
    ("topology", "expect"): Exit.UNKNOWN,
    ("release",): Exit.NO_ANSWER,
}
"""On a machine with neither a driver nor a daemon."""
PLAYED = {
    ("check", "--replay", "h200x2-idle"): Exit.OK,
    ("check", "--replay", "h200x4-idle", "--overlay", "nvlink-link-down"): Exit.FAILED,
    ("status", "--replay", "h200x4-idle", "--overlay", "nvlink-link-down"): Exit.FAILED,
    ("status", "--replay", "h200x4-idle", "--overlay", "gpu-throttle-thermal"): Exit.DEGRADED,
    ("top", "--replay", "h200x4-idle", "--overlay", "nvlink-link-down", "--once"): Exit.FAILED,
    ("top", "--replay", "h200x2-idle", "--once"): Exit.OK,
    ("explain", "--replay", "h200x2-idle"): Exit.USAGE,
    ("topology", "diff", "h200x4-idle", "h200x2-idle"): Exit.FAILED,
    ("topology", "diff", "h200x2-idle", "h200x2-idle"): Exit.OK,
}
"""On recordings."""


PART, CAUSE = "nvlink.link_down GPU 2 link 7", "inactive; 17 of 18 links up"
ANSWERS = {
    ("check",): f"FAILED {PART}: {CAUSE}. drain; see `nvidia-smi nvlink -s` and XID 74 or 149 in the kernel "
    "log; `wirewatch release --for 10m`, then reset the GPU, then reseat it",
    ("findings", "list"): f"FAILED, no job may start: {PART}: {CAUSE}. Next: `wirewatch findings show ID`",
    ("findings", "show", "ID"): "wirewatch finding ID: FAILED nvlink.link_down, GPU 2 link 7",
    ("status",): f"FAILED     no job may start: {PART}: inactive; 17 of 18",
    ("top", "--once"): "wirewatch, synthetic: FAILED, no job may start; 0 jobs, 1 finding",
}
"""The first line of each command there, without a host, since it is a recording."""
LONG = {("findings", "show", "ID")}
"""Commands with more than LINES lines: the text of a ticket."""


def below(words: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with its words."""
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from below((*words, name), found)


COMMANDS = dict(below((), cli))


def of(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command that a line names."""
    return next(words[:n] for n in range(len(words), 0, -1) if words[:n] in COMMANDS)


def test_each_verdict_and_each_code_is_in_the_table() -> None:
    assert {one: exit_of(one).value for one in Health} == {
        Health.OK: 0, Health.DEGRADED: 1, Health.FAILED: 2, Health.UNKNOWN: 3,
    }  # fmt: skip
    assert sorted(Exit) == [0, 1, 2, 3, 64, 69, 70, 78]


def test_every_command_that_asks_a_daemon_has_a_row() -> None:
    asking = {
        words
        for words, command in COMMANDS.items()
        if any(one.name == "socket" for one in command.params) and words[0] != "fleet"
    }
    assert {of(words) for words in WITHOUT_DAEMON} == asking
    without = {("config", "show"), ("release",), ("topology", "diff")}
    assert asking - {of(words) for words in ON_FAILED} == without


@each(("words",), [(words,) for words in COMMANDS])
def test_bad_input_is_wrong_usage(words: tuple[str, ...]) -> None:
    assert run([*words, "--no-such-option"]) == Exit.USAGE


def test_a_wrong_command_is_wrong_usage() -> None:
    assert run(["no-such-command"]) == Exit.USAGE


@each(("words", "code"), list(WITHOUT_DAEMON.items()))
def test_without_a_daemon_only_a_verdict_is_a_verdict(words: tuple[str, ...], code: Exit) -> None:
    assert run([*words, "--socket", "/nowhere/wirewatch.sock"]) == code


@each(("words",), [(words,) for words in WITHOUT_DAEMON])
def test_a_configuration_that_cannot_be_read_is_wrong(words: tuple[str, ...]) -> None:
    assert run([*words, "--config", "/nowhere/wirewatch.toml"]) == Exit.CONFIG


@pytest.mark.skipif(
    os.path.exists("/dev/nvidiactl"),  # noqa: PTH110
    reason="this machine has a driver; the test is about one that has none",
)
@pytest.mark.parametrize(("words", "code"), WITHOUT_DRIVER.items(), ids=str)
def test_without_a_driver(tmp_path: Path, words: tuple[str, ...], code: Exit) -> None:
    file = tmp_path / "w.toml"
    file.write_text(f'[listen]\nsocket = "{tmp_path}/none.sock"\n', "utf-8")
    done = run_wirewatch(*words, "--config", str(file))
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize(("words", "code"), PLAYED.items(), ids=str)
def test_on_a_recording(words: tuple[str, ...], code: Exit) -> None:
    done = run_wirewatch(*words)
    assert done.returncode == code, done.stderr


def test_on_a_node_that_is_failed_and_without_a_job(tmp_path: Path) -> None:
    path = f"{tmp_path}/w.sock"
    config = FAST.replace('socket = ""', f'socket = "{path}"') + "[probe]\nenabled = false\n"
    with Daemon(("--replay", "h200x4-idle", "--overlay", "nvlink-link-down"), tmp_path, config) as running:
        found = running.wait("/health", '"rule":"nvlink.link_down","health":"failed"').json()["findings"]
        name = next(one["id"] for one in found if one["rule"] == "nvlink.link_down")
        done = {
            words: run_wirewatch(*(name if word == "ID" else word for word in words), "--socket", path)
            for words in ON_FAILED
        }
        assert {words: one.returncode for words, one in done.items()} == ON_FAILED
        answers = {words: done[words].stdout.splitlines() for words in ANSWERS}
        assert {words: lines[0].replace(name, "ID") for words, lines in answers.items()} == ANSWERS
        assert {words for words, lines in answers.items() if len(lines) > LINES} == LONG
        assert run_wirewatch("release", "--for", "1m", "--socket", path).returncode == Exit.OK
        # What was FAILED stays so while nobody watches.
        assert run_wirewatch("check", "--cached", "--socket", path).returncode == Exit.FAILED
