"""Commands of the lab refuse wrong words and files in one line, as those of the node do."""

from pathlib import Path

import pytest

from tests.node.cli.test_wrong_input import refuses_latin
from wirewatch.cli import run
from wirewatch.core.exits import Exit


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("sweep", "--repeats", "0"), "--repeats: '0' is not a whole number from 1 to 1000"),
        (("advise", "bench-script"), "Missing option '--nodes'."),
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
        (Exit.USAGE, ("advise", "placement", "--cluster", "FILE", "--tp", "4")),
        (Exit.USAGE, ("sweep", "--compare", "FILE", "FILE")),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else str(one),
)
def test_a_file_that_is_not_utf8(code: int, arguments: tuple[str, ...], tmp_path: Path) -> None:
    refuses_latin(code, arguments, tmp_path)
