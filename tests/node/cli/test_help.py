"""Help is whole, every command has an example that is right, and a slip gets the nearest name."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from tests.processes import run_wirewatch
from tests.rows import each
from wirewatch.cli import COMMANDS, added, cli
from wirewatch.cli.groups import CommandGroup, LazyGroup, whole_sentence
from wirewatch.core.names import did_you_mean, nearest
from wirewatch.hw.overlay import bundled_overlays
from wirewatch.hw.recording import bundled_names

OK, USAGE, CONFIG = 0, 64, 78
WIDTH = 80
HIDDEN = (("prober",), ("fleet", "peer"), ("fleet", "tell"), ("overlays",), ("recordings",))
"""Commands that no list has: machines call them, or they are names of before."""
ALONE: Mapping[tuple[str, ...], tuple[str, ...] | None] = {
    ("demo",): None, ("findings",): ("list",), ("topology",): ("show",), ("overlays",): ("list",),
    ("recordings",): ("list",),
}  # fmt: skip
"""Groups that answer alone, each with the command that answers; None: the group itself."""


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below a group with the words that call it, groups too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


def called(words: Sequence[str]) -> tuple[click.Command, list[str]]:
    """The command that words name, and the words after its name."""
    found: click.Command = cli
    rest = list(words)
    while isinstance(found, click.Group):
        following = found.get_command(click.Context(found), rest[0]) if rest else None
        if following is None:
            break
        found, rest = following, rest[1:]
    return found, rest


EVERY = dict(commands(cli)) | {words: called(words)[0] for words in HIDDEN}
LEAVES = {words: one for words, one in EVERY.items() if not isinstance(one, click.Group)}
GROUPS = {words: one for words, one in EVERY.items() if isinstance(one, click.Group)} | {(): cli}


def example_lines(command: click.Command) -> list[str]:
    return [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")]


@each("words", EVERY, ids=" ".join)
def test_help_fits_a_terminal_and_is_not_cut_off(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, [*words, "--help"], terminal_width=WIDTH)
    assert done.exit_code == OK
    # A metavar such as NAME=NODES[@FROM[-UNTIL]] is one word, longer than its column.
    assert max(len(line) for line in done.output.splitlines() if "[" not in line) <= WIDTH
    listed = done.output.partition("Commands:\n")[2]
    assert "..." not in listed


@pytest.mark.parametrize("words", sorted(set(GROUPS) - set(ALONE)), ids=" ".join)
def test_a_group_alone_shows_its_help_and_ends_well(words: tuple[str, ...]) -> None:
    alone, asked = (CliRunner().invoke(cli, [*words, *more]) for more in ((), ("--help",)))
    assert (alone.exit_code, alone.output) == (OK, asked.output)


@pytest.mark.parametrize("words", [words for words, one in ALONE.items() if one], ids=" ".join)
def test_a_group_that_lists_or_shows_answers_alone(words: tuple[str, ...]) -> None:
    """Without a daemon the answer is why there is none; options of the command that answers are taken."""
    for more in ((), ("--json",)) if words != ("topology",) else ((), ("--replay", "h200x4-idle")):
        alone, whole = (CliRunner().invoke(cli, [*words, *own, *more]) for own in ((), ALONE[words] or ()))
        assert (alone.exit_code, alone.output) == (whole.exit_code, whole.output)
        assert "Usage:" not in alone.output


def test_hidden_commands_are_in_no_list_and_answer_all_the_same() -> None:
    listed = CliRunner().invoke(cli, ["--help"]).output + CliRunner().invoke(cli, ["fleet", "--help"]).output
    for *_, name in HIDDEN:
        assert f"\n  {name} " not in listed
    for name, more in (("recordings", ()), ("overlays", ("nvlink",))):
        now, before = (CliRunner().invoke(cli, [*words, *more]) for words in (("demo", name), (name, "list")))
        assert (before.exit_code, before.output) == (OK, now.output)


def test_the_demo_is_a_command_with_commands() -> None:
    text = CliRunner().invoke(cli, ["demo", "--help"]).output
    assert " demo [OPTIONS] [FAULT]\n" in text
    assert "--here" in text
    assert "\n  recordings " in text
    assert "\n  run " not in text
    assert completed("demo", "rec")[0] == "recordings"
    assert "--listen" in completed("demo", "--l")


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_a_table_says_of_each_command_what_that_says_itself(words: tuple[str, ...]) -> None:
    group = GROUPS[words]
    assert isinstance(group, CommandGroup)
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert group.sentence(context, name) == whole_sentence(command)
        assert group.sentence(context, name).endswith(".")


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_has_an_example_that_it_takes(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = example_lines(LEAVES[words])
    assert lines
    assert max(map(len, lines)) <= WIDTH - 4
    own = [one for line in lines for one in calls(line)]
    assert any(tuple(one[1 : 1 + len(words)]) == words for one in own)
    for one in own:
        command, rest = called(one[1:])
        for name in rest:
            if name.endswith((".json", ".toml", "/before", "/after")) and not name.startswith("/"):
                Path(name).write_text("", "utf-8")
        command.make_context("x", list(rest), parent=click.Context(cli))


def calls(line: str) -> Iterator[list[str]]:
    """The calls of wirewatch in a line for a shell."""
    inner = line.replace("<(", " ; ").replace(")", " ; ")
    lexer = shlex.shlex(inner, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    call: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|;&<>"):
            if call[:1] == ["wirewatch"]:
                yield call
            call = [">"] if ">" in word else []
        else:
            call.append(word)


# --- slips


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("stauts",), USAGE, "Did you mean 'status'?"),
        (("chek",), USAGE, "Did you mean 'check'?"),
        (("zzz",), USAGE, "`wirewatch --help` lists them."),
        (("findings", "lst"), USAGE, "Did you mean 'list'?"),
        (("check", "--sokcet", "x"), USAGE, "Did you mean '--socket'?"),
        (("demo", "nvlink-link-dwn"), CONFIG, "did you mean 'nvlink-link-down'"),
        (("check", "--replay", "demo-dgx-h20"), CONFIG, "did you mean 'demo-dgx-h200'?"),
        (("check", "--replay", "zzz"), CONFIG, "`wirewatch demo recordings`"),
        (("demo", "qqqq"), CONFIG, "`wirewatch demo overlays`"),
        (("overlays", "list", "qqqq"), USAGE, "none of"),
        (("demo", ""), CONFIG, "`wirewatch demo overlays`"),
        (("completion",), USAGE, "Choose from: bash, zsh, fish"),
    ],
)
def test_a_slip_gets_one_line_with_the_nearest_name(words: tuple[str, ...], code: int, told: str) -> None:
    done = run_wirewatch(*words)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert told in line
    assert len(line) < 2 * WIDTH


def test_the_nearest_of_all_faults() -> None:
    names = bundled_overlays()
    assert nearest("nvlink-link-dwn", names)[0] == "nvlink-link-down"
    assert nearest("THERMAL", names) == ("gpu-throttle-thermal",)
    assert len(nearest("nvlink", names)) == 3
    # Not gpudirect-lost, nor all that have an x somewhere.
    assert nearest("dir", names) == ()
    assert all(name.startswith("xid-") for name in nearest("xid", names))
    assert nearest("x", ["expect", "x-ray"]) == ("x-ray",)
    assert nearest("", names) == ()
    assert did_you_mean("", names, "else") == "else"


# --- completion


def completed(*words: str) -> list[str]:
    shell = BashComplete(cli, {}, "wirewatch", "_WIREWATCH_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_commands_options_recordings_and_faults_are_completed() -> None:
    assert completed("") == sorted(name for name, one in {**COMMANDS, **added()}.items() if not one.hidden)
    assert completed("topology", "") == ["accept", "baseline", "diff", "expect", "show"]
    assert completed("check", "--overlay", "nvlink-") == [
        name for name in bundled_overlays() if name.startswith("nvlink-")
    ]
    assert completed("check", "--replay", "") == bundled_names()
    assert completed("demo", "xid-7") == ["xid-74", "xid-79"]
    assert "--replay" in completed("status", "--re")
    # What is no bundled name may be a path.
    assert completed("check", "--overlay", "./") == ["./"]


def test_a_word_is_completed_without_importing_commands() -> None:
    group = LazyGroup(name="x", table=COMMANDS)
    items = group.shell_complete(click.Context(group), "top")
    assert [(item.value, item.help) for item in items] == [
        (name, COMMANDS[name].sentence) for name in ("top", "topology")
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_clicks_own(shell: str) -> None:
    done = run_wirewatch("completion", shell)
    assert (done.returncode, done.stderr) == (OK, "")
    assert f"_WIREWATCH_COMPLETE={shell}_complete" in done.stdout


def test_bash_completes_with_it(tmp_path: Path) -> None:
    script = run_wirewatch("completion", "bash").stdout
    (tmp_path / "script").write_text(script, "utf-8")
    asked = "COMP_WORDS=(wirewatch demo xid-7); COMP_CWORD=2; _wirewatch_completion wirewatch"
    line = f'source {tmp_path}/script; {asked}; echo "${{COMPREPLY[@]}}"'
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split() == ["xid-74", "xid-79"]
