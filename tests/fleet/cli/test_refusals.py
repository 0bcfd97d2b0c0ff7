"""Commands of the fleet refuse wrong words and files in one line, as those of the node do."""

from pathlib import Path

import pytest

from tests.node.cli.test_wrong_input import refuses_latin
from wirewatch.cli import run
from wirewatch.core.exits import Exit

PROBE = ("fleet", "probe", "--kubernetes", "--nodelist", "a,b", "--namespace", "x")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("fleet", "stat"), "No such command 'stat'. Did you mean 'status'?"),
        (("fleet", "probe", "--past", "none.json"), "--past: file 'none.json' does not exist"),
        (("fleet", "pairs", "none.json"), "RESULTS: file 'none.json' does not exist"),
    ],
)
def test_a_refusal_names_the_option(
    arguments: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == Exit.USAGE
    assert capsys.readouterr().err == f"wirewatch: {line}\n"


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (Exit.CONFIG, ("fleet", "simulate", "--page", "FILE", "--listen", "127.0.0.1:0")),
        (Exit.CONFIG, ("fleet", "status", "--prometheus", "http://127.0.0.1:9", "--token-file", "FILE")),
        (Exit.USAGE, ("fleet", "pairs", "FILE")),
        (Exit.USAGE, ("fleet", "tell", "FILE")),
        (
            Exit.USAGE,
            (
                "fleet",
                "probe",
                "--kubernetes",
                "--nodelist",
                "a,b",
                "--namespace",
                "x",
                "--pod-template",
                "FILE",
            ),
        ),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else str(one),
)
def test_a_file_that_is_not_utf8(code: int, arguments: tuple[str, ...], tmp_path: Path) -> None:
    refuses_latin(code, arguments, tmp_path)
