"""Lines of several files: each has the number that `grep -n` gives it in its own."""

import io
import json

import pytest

from tests.lab.study.printed import Job
from tests.lab.study.printed import lines as printed_lines
from tests.lab.study.test_nccljson import DOCUMENT
from wirewatch_lab.study.nccljson import mixed_lines
from wirewatch_lab.study.nccllog import read_log
from wirewatch_lab.study.nccltests import Reader

MARK = "n1:7:9 [0] NCCL INFO NCCL_ALGO set by environment to Ring"
CRI = "2026-11-28T19:29:07.123456789Z stdout {} {}"


@pytest.mark.parametrize(
    "before",
    [
        [],
        ["", "text", ""],
        ["50%\r51%\r52%", "a\x0cb"],
        [CRI.format("P", "half a "), CRI.format("F", "line")],
        [json.dumps({"log": "two\nlines"})],
        json.dumps(DOCUMENT, indent=1).split("\n"),
        [json.dumps(DOCUMENT)],
        ["{", "no document", "", "}"],
        printed_lines(Job()),
        ["x" * (1 << 17)],
    ],
    ids=["none", "blank", "progress", "torn", "wrapped", "document", "one line", "braces", "table", "long"],
)
def test_a_line_has_its_number_in_its_file(before: list[str]) -> None:
    reader = Reader()
    files = [("/a/first.txt", "one\n\rtwo\n"), ("/b/second.log", "\n".join([*before, MARK, "after"]) + "\n")]

    def lines() -> list[str]:
        return [line for name, text in files for line in mixed_lines(io.BytesIO(text.encode()), reader, name)]

    (setting,) = read_log(lines()).settings
    assert reader.places.whole(setting.line) == f"second.log:{len(before) + 1}"
    assert reader.places.named(1) == "first.txt:1"


def test_of_one_file_the_number_is_enough_and_names_alike_stay_whole() -> None:
    reader = Reader()
    list(mixed_lines(io.BytesIO(b"a\nb\n"), reader, "/a/log"))
    assert (reader.places.brief(2), reader.places.named(2), reader.places.whole(2)) == (
        "2",
        "line 2",
        "log:2",
    )
    list(mixed_lines(io.BytesIO(b"a\nb\n"), reader, "/b/log"))
    assert [reader.places.brief(line) for line in (2, 3)] == ["/a/log:2", "/b/log:1"]
