"""Every command of the pages is run as it stands, or its words are known to be right."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.node.daemon.process import Daemon
from tests.processes import TIMEOUT, Process
from tests.tools.blocks import OTHERS, ROOT, SHELLS, Block, blocks, pages, simple, spans, wrong

PAGES = pages()
EVERY = [one for page in PAGES for one in blocks(page)]
COMMANDS = [one for one in EVERY if one.kind in SHELLS]
RUN = [one for one in COMMANDS if not one.mark]
BESIDE = [one for one in COMMANDS if one.mark == "beside"]
VERDICTS = range(4)
"""Exit codes of commands that did what they were asked."""

LINES = [(one, line) for one in COMMANDS for line, _ in one.commands]


def test_what_is_a_command_is_marked_as_one() -> None:
    begins = re.compile(
        rf"^(\$ |(?:{'|'.join(sorted(OTHERS - {'source'}))}|wirewatch|make|pip) \S)", re.MULTILINE
    )
    assert not [
        f"{one}: mark it as bash or console" for one in EVERY if not one.kind and begins.search(one.text)
    ]


def test_the_words_of_commands_are_right() -> None:
    told = [f"{one}: {line}: {wrong(words)}" for one, line in LINES for words in simple(line) if wrong(words)]
    assert not told


def test_commands_in_the_text_are_right() -> None:
    lines = [(page, re.sub(r"\[(-[^]]*)\]", r"\1", line)) for page in PAGES for line in spans(page)]
    told = [(page.name, line, wrong(words)) for page, line in lines for words in simple(line) if wrong(words)]
    # In a sentence an option may stand without its value.
    assert not [one for one in told if "requires" not in one[2]]


def test_scripts_are_of_bash() -> None:
    script = "\n".join(f"{line}\n" for _, line in LINES)
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert not done.stderr


@pytest.mark.parametrize("block", RUN, ids=str)
def test_a_command_runs_as_it_stands(block: Block, tmp_path: Path) -> None:
    play(block, tmp_path, tmp_path)


@pytest.mark.parametrize("arguments", sorted({one.about for one in BESIDE}))
def test_commands_beside_a_daemon_run_as_they_stand(arguments: str, tmp_path: Path) -> None:
    config = f'[listen]\nsocket = "{tmp_path}/wirewatch.sock"\n'
    with Daemon(shlex.split(arguments)[1:], tmp_path, config) as daemon:
        daemon.ready()
        if "--overlay" in arguments:
            daemon.wait("/health", '"id"')
        port = daemon.url.rpartition(":")[2]
        for number, block in enumerate(one for one in BESIDE if one.about == arguments):
            folder = tmp_path / str(number)
            folder.mkdir()
            play(block, folder, tmp_path, port)


def play(block: Block, folder: Path, runtime: Path, port: str = "") -> None:
    """Run the commands of a block one after the other, in a folder that has what a clone has."""
    for name in ("docs", "deploy", "helm", ".venv"):
        (folder / name).symlink_to(ROOT / name)
    status = 0
    for command, printed in block.commands:
        if command == "echo $?":
            assert f"{status}\n" == printed, f"{block}: exit code {status}"
            continue
        status, out = _run(command, folder, runtime, port)
        assert status in VERDICTS, f"{block}: {command}: {status}: {out}"
        if block.kind == "console":
            assert re.fullmatch(_pattern(printed), out), f"{block}: {command} prints\n{out}"


def _run(command: str, folder: Path, runtime: Path, port: str) -> tuple[int, str]:
    """Exit code and output; a command of ours alone is forked, all else is bash's."""
    environment = {**os.environ, "RUNTIME_DIRECTORY": str(runtime), "COLUMNS": "200"}
    words = shlex.split(command, comments=True)
    ours = (
        Path(words[0]).name == "wirewatch"
        and len(list(simple(command))) == 1
        and not re.search("[<>$]", command)
    )
    program = tuple(["wirewatch", *words[1:]] if ours else ["bash", "-c", _shell(port) + command])
    if not ours:
        done = subprocess.run(
            program, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        return done.returncode, done.stdout + done.stderr
    with Process(program, subprocess.PIPE, subprocess.PIPE, environment, folder) as process:
        out, err = process.communicate(TIMEOUT)
    return process.wait(), out + err


def _shell(port: str) -> str:
    """What the page takes for granted: the command on the path, and the daemon at its usual port."""
    functions = [f'wirewatch() {{ {ROOT}/.venv/bin/wirewatch "$@"; }}']
    if port:
        functions.append(f'curl() {{ command curl --connect-to ::127.0.0.1:{port} "$@"; }}')
    return "; ".join(functions) + "; "


def _pattern(printed: str) -> str:
    """What the page says that is printed, where `...` stands for anything."""

    def line(text: str) -> str:
        return ".*" if text.strip() == "..." else re.escape(text.rstrip()).replace(r"\.\.\.", ".*") + r"\s*"

    return "(?s)" + "\n?".join(line(text) for text in printed.splitlines()) + r"\s*"
