"""The kit's part `jobrecording`: what it takes for right, and which moment belongs to which phase."""

import json
from pathlib import Path

from proof.hardware.jobrecording import Phase, annotate
from wirewatch.hw.recording import MANIFEST

SLOW = "slow wire"


def test_nothing_but_what_is_expected_is_right() -> None:
    assert Phase("wire", "", SLOW, seen={SLOW: 20.0}).right
    assert not Phase("wire", "", SLOW, seen={SLOW: 20.0, "late rank": 3.0}).right
    assert not Phase("wire", "", SLOW).right
    assert Phase("healthy", "", "").right
    assert not Phase("healthy", "", "", seen={SLOW: 20.0}).right


def test_each_moment_is_noted_with_the_phase_that_began_last(tmp_path: Path) -> None:
    moments = [{"moment": n, "at": at, "note": ""} for n, at in enumerate((9.9, 10.0, 19.9, 25.0))]
    (tmp_path / MANIFEST).write_text(json.dumps({"moments": moments}), "utf-8")
    annotate(tmp_path, [Phase("idle", "no job", "", 10.0), Phase("wire", "a job", SLOW, 20.0)])
    noted = json.loads((tmp_path / MANIFEST).read_text("utf-8"))["moments"]
    assert [one["note"] for one in noted] == ["", "no job", "no job", "a job"]
