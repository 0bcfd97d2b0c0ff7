"""`wirewatch demo recordings` and `wirewatch demo overlays`, and their names of before."""

import json

import pytest
from click.testing import CliRunner

from tests.node.cli.schemas import complaints
from wirewatch.cli import cli
from wirewatch.hw.overlay import bundled_overlays, load_overlay
from wirewatch.hw.recording import bundled_names

OK, USAGE = 0, 64


def listed(*words: str) -> str:
    done = CliRunner().invoke(cli, [*words])
    assert done.exit_code == OK, done.output
    return done.output


def test_every_recording_has_a_sentence() -> None:
    lines = listed("recordings", "list").split("\n\n")[0].splitlines()
    rows = [line.split(maxsplit=1) for line in lines if line[0] != " "]
    assert [name for name, _ in rows] == bundled_names()
    assert dict(rows)["h200x4-idle"].strip() == "4 NVIDIA H200, 10 s: idle"
    assert dict(rows)["demo-dgx-h200"].strip().endswith("part of it made up")


def test_every_overlay_has_a_sentence_and_says_how_bad_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    text = " ".join(listed("overlays", "list").split())
    for name in bundled_overlays():
        assert f"{name} " in text
        assert " ".join(load_overlay(name).about.split()) in text
    assert "nvlink-link-down FAILED: GPU 2 loses NVLink 7" in text
    assert "nic-moved mlx5_4 has been given to a pod: no fault" in text
    assert "job-hang-stopped a job of eight ranks" in text, "a finding of a job changes no node's health"


def test_words_choose_among_names_sentences_and_rules() -> None:
    some = listed("overlays", "list", "thermal", "SUBNET")
    assert [line.split()[0] for line in some.split("\n\n")[0].splitlines() if line[0] != " "] == [
        "gpu-throttle-thermal", "ib-port-init",
    ]  # fmt: skip
    assert some.endswith("Try one: wirewatch demo gpu-throttle-thermal\n")


@pytest.mark.parametrize("what", ["recordings", "overlays"])
def test_lists_fit_a_narrow_terminal(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, listed(what, "list").splitlines())) <= 40


def test_documents_are_as_their_schemas_say() -> None:
    recordings = listed("recordings", "list", "--json")
    assert complaints("wirewatch.recordings.1", recordings) == []
    assert {one["name"]: one["gpus"] for one in json.loads(recordings)["recordings"]}["h200x8"] == 8
    overlays = listed("overlays", "list", "--json")
    assert complaints("wirewatch.overlays.1", overlays) == []
    found = {one["name"]: (one["health"], one["rules"]) for one in json.loads(overlays)["overlays"]}
    assert found["nvlink-link-down"] == ("failed", ["nvlink.link_down"])
    assert found["nic-moved"] == (None, [])
