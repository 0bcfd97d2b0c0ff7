"""The part that takes a GPU away: reading the node's state, without a GPU."""

import json

from proof.hardware.taken import Course, healthy, lost, ready, state_of, worded
from tests.rows import each

FINDING = {"rule": "gpu.lost", "subject": {"gpu": "1"}, "health": "failed"}


def body(health: str, *findings: object, job: bool = False) -> bytes:
    return json.dumps({"health": health, "job_ready": job, "findings": findings}).encode()


@each(
    ("said", "is_healthy", "is_ready", "is_lost"),
    [
        (body("ok", job=True), True, True, False),
        (body("ok"), False, False, False),
        (body("degraded", FINDING, job=True), False, True, False),
        (body("failed", FINDING), False, False, True),
        (body("failed", FINDING, job=True), False, True, False),
        (body("unknown", FINDING), False, False, False),
        (body("failed", {**FINDING, "rule": "nvlink.link_down"}), False, False, False),
    ],
)
def test_a_state_is_judged_by_all_that_it_says(
    said: bytes, *, is_healthy: bool, is_ready: bool, is_lost: bool
) -> None:
    state = state_of(said)
    assert (healthy(state), ready(state), lost(state)) == (is_healthy, is_ready, is_lost)


def test_a_state_has_its_findings_in_order_and_in_one_line() -> None:
    state = state_of(body("failed", {**FINDING, "subject": {"gpu": "1", "link": "7"}}, FINDING))
    assert worded(state) == "failed, a job may not start: gpu.lost 1 7 failed; gpu.lost 1 failed"
    assert worded(state_of(body("ok", job=True))) == "ok, a job may start: nothing found"


def test_a_course_has_each_change_once() -> None:
    course = Course()
    for what in ("ok", "ok", "taken", "ok"):
        course.see(what)
    assert [what for _, what in course.states] == ["ok", "taken", "ok"]
