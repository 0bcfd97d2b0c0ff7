"""RAS in a recording: asked only where an operator says so, masked, and played."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.cli.test_recorder import hardware
from tests.node.hw.masks import mask
from tests.node.hw.recordings import Time, player, recording
from tests.node.jobs.hungjobs import NOBODY, HungJob
from tests.node.jobs.ras.reports import HOST
from wirewatch.cli.recorder import Recorder
from wirewatch.core.jobs import RasListener, RasReport
from wirewatch.core.ports import Answer
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw.recording import Key, load_recording
from wirewatch.jobs.ras.recorded import LISTENERS, REPORTS, ReplayRas, record_ras


def recorded(job: HungJob) -> dict[Key, Answer]:
    job.poll()
    return dict(record_ras(job.watched.hardware))


def replayed(answers: Mapping[Key, Json | Absent]) -> ReplayRas:
    source = recording((0.0,), {key: {0: value} for key, value in answers.items()})
    return ReplayRas(player(source, Time(0.0)))


def rows(answers: Mapping[Key, Answer]) -> list[dict[str, Any]]:
    return [
        {"port": port, "question": question, "moment": 0, "answer": answer.value}
        for (port, question), answer in answers.items()
        if not isinstance(answer.value, Absent)
    ]


def test_what_was_recorded_is_played() -> None:
    job = HungJob()
    answers = recorded(job)
    played = replayed({key: answer.value for key, answer in answers.items()})
    assert played.ask(1.0) == job.reports()
    assert played.listeners() == played.listeners(4000) == job.ras.own


def test_a_missing_answer_is_recorded_as_that() -> None:
    job = HungJob(answer=NOBODY)
    played = replayed({key: answer.value for key, answer in recorded(job).items()})
    assert played.ask(1.0) == NOBODY


def test_processes_on_gpus_are_recorded_without_their_names() -> None:
    answers = recorded(HungJob(gpus=2))
    assert answers["sysfs", "read /proc/4001/stat"].value == (
        "4001 (masked) R 77 77 77 0 -1 4194304 0 0 0 0 0 0 0 0"
    )
    assert (
        answers["sysfs", "read /proc/4001/status"].value == "Uid:\t1000\t1000\t1000\t1000\nNSpid:\t4001\t901"
    )
    assert not any("cgroup" in question for _, question in answers)


def test_hosts_and_users_are_masked_and_stay_apart() -> None:
    job = HungJob(gpus=2)
    job.ras.own = (RasListener("198.51.100.7:28028", 1234, 7, open=True),)
    masked = {row["question"]: row["answer"] for row in mask(rows(recorded(job)))}
    text = json.dumps(masked)
    assert HOST == "192.0.2.2"
    assert "198.51.100.7" not in text
    assert [rank["host"] for one in masked["Reports()"][0]["communicators"] for rank in one["ranks"]] == [
        "192.0.2.1", "192.0.2.1",
    ]  # fmt: skip
    assert masked["Listeners()"][0]["address"] == "192.0.2.2:28028"
    assert 1234 not in {masked["Listeners()"][0]["uid"], masked["Reports()"][0]["uid"]}


def test_a_recorder_leaves_jobs_alone_unless_it_is_reported_not_to(tmp_path: Path) -> None:
    ports, _ = hardware(load_recording("h200x2-idle"), Time(0.0), tmp_path)
    asked = HungJob().ras
    ports = replace(ports, ras=asked)
    alone = Recorder(ports)
    alone.take()
    assert asked.asked == 0
    assert not any(row["port"] == "ras" for row in alone.rows)
    told = Recorder(ports, ras=True)
    told.take()
    assert asked.asked == 1
    assert {row["question"] for row in told.rows if row["port"] == "ras"} == {"Reports()", "Listeners()"}


def test_a_recording_without_ras_has_nothing_to_ask() -> None:
    played = ReplayRas(player(load_recording("h200x2-idle"), Time(0.0)))
    for found in (played.ask(1.0), played.listeners()):
        assert isinstance(found, Absent)
        assert found.why is Why.MISSING


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(JSON)
def test_any_line_is_a_report_or_says_why_not(value: Json) -> None:
    found: Sequence[RasReport] | Absent = replayed({REPORTS: value}).ask(1.0)
    listening = replayed({LISTENERS: value}).listeners()
    for one in (found, listening):
        assert isinstance(one, tuple) or (isinstance(one, Absent) and one.why is Why.MALFORMED)


@pytest.mark.parametrize("value", [[{"nccl": "2.28.9"}], {"communicators": []}])
def test_a_line_that_is_no_report_is_malformed(value: Json) -> None:
    assert isinstance(replayed({REPORTS: value}).ask(1.0), Absent)
