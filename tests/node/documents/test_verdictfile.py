"""The file of the verdict, whole: a gate without Python reads exactly this."""

from wirewatch.documents.health import NodeGpu
from wirewatch.documents.verdictfile import EVERY, VALID, FilePart, FileVerdict, Stamp, encoded, plain_ascii

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


def test_the_whole_file_of_the_parts() -> None:
    gpus = [
        NodeGpu("0", "0", "GPU-1F0C", "0000:1B:00.0", split=False),
        NodeGpu("1", "", "", "", split=None),
        NodeGpu("2", "3", "GPU 7/*", "0000:3b:00.0", split=True),
    ]
    parts = (
        FilePart("ok", "OK; no probe yet"), *(FilePart("failed", "FAILED: GPU 2\n...", gpu) for gpu in gpus),
    )  # fmt: skip
    verdict = FileVerdict(
        "live", "failed", may_start=False, fail_on=("unknown", "failed"), always=("failed",), probe="never",
        released=True, line="FAILED: GPU 2\N{HORIZONTAL ELLIPSIS}", parts=parts,
    )  # fmt: skip
    body = BODY.replace("verdict 1", "verdict-gpus 1") + (
        "parts 4\n"
        "part ok OK; no probe yet\n"
        "part 0/0/gpu-1f0c/0000:1b:00.0/whole/ failed FAILED: GPU 2 ...\n"
        "part 1/-/-/-/unknown/ failed FAILED: GPU 2 ...\n"
        "part 2/3/-/0000:3b:00.0/split/ failed FAILED: GPU 2 ...\n"
    )
    assert encoded(verdict, Stamp("b-1", 12.3), gpus=True).decode() == f"{body}end 12.30 {len(body)}\n"


def test_four_verdicts_may_be_lost_before_the_file_is_too_old() -> None:
    assert VALID == 4 * EVERY


def test_nothing_in_a_line_ends_it() -> None:
    assert plain_ascii("a\nb\x7fc\u00fc\u2028") == "a b c??"
