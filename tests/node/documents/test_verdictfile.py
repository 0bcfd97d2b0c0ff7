"""The file of the verdict, whole: a gate without Python reads exactly this."""

from wirewatch.documents.verdictfile import EVERY, VALID, FileVerdict, Stamp, encoded, plain_ascii

BODY = """\
wirewatch-verdict 1
boot b-1
written 12.30
valid 20
source live
health failed
job_ready no
fail_on unknown,failed
always failed
probe never
released yes
line FAILED: GPU 2...
"""


def test_the_whole_file() -> None:
    verdict = FileVerdict(
        "live", "failed", may_start=False, fail_on=("unknown", "failed"), always=("failed",), probe="never",
        released=True, line="FAILED: GPU 2\N{HORIZONTAL ELLIPSIS}",
    )  # fmt: skip
    assert encoded(verdict, Stamp("b-1", 12.3)).decode() == f"{BODY}end 12.30 {len(BODY)}\n"


def test_four_verdicts_may_be_lost_before_the_file_is_too_old() -> None:
    assert VALID == 4 * EVERY


def test_nothing_in_a_line_ends_it() -> None:
    assert plain_ascii("a\nb\x7fc\u00fc\u2028") == "a b c??"
