"""Health, subjects and metrics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewatch.core.types import Absent, Finding, Health, Kind, Metric, NotText, Subject, Why, utf8, worst


def _finding(health: Health) -> Finding:
    return Finding("some.rule", health, Subject(gpu="0"), "evidence", "action")


def test_not_knowing_is_worse_than_degraded_and_better_than_failed() -> None:
    assert Health.OK < Health.DEGRADED < Health.UNKNOWN < Health.FAILED


def test_nothing_found_is_healthy() -> None:
    assert worst(()) is Health.OK


@given(st.lists(st.sampled_from(Health), min_size=1))
def test_the_worst_finding_decides_wherever_it_stands(healths: list[Health]) -> None:
    told = worst([_finding(h) for h in healths])
    assert told in healths
    assert all(told >= h for h in healths)


@given(st.lists(st.sampled_from(Health)), st.sampled_from(Health))
def test_one_more_finding_never_makes_it_better(healths: list[Health], more: Health) -> None:
    before = [_finding(h) for h in healths]
    assert worst([*before, _finding(more)]) >= worst(before)


LINKS = Metric("links", Kind.GAUGE, ("device", "state"), "Links by state.")


def test_a_sample_carries_its_family_its_labels_and_its_value() -> None:
    sample = LINKS.sample(18, "0", "active")
    assert (sample.metric, sample.labels, sample.value) == (LINKS, ("0", "active"), 18)


@pytest.mark.parametrize("labels", [(), ("0",), ("0", "active", "more")])
def test_a_metric_refuses_a_wrong_number_of_label_values(labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="links"):
        LINKS.sample(18, *labels)


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (Subject(), "node"),
        (Subject(gpu="3", uuid="GPU-3"), "GPU 3"),
        (Subject(gpu="3", link="7"), "GPU 3 link 7"),
        (Subject(device="mlx5_0", port="1"), "mlx5_0 port 1"),
    ],
)
def test_a_subject_reads_as_a_person_would_name_the_part(subject: Subject, text: str) -> None:
    assert str(subject) == text


def test_findings_of_the_same_rule_and_part_have_the_same_key_whatever_their_numbers() -> None:
    first = Finding("r", Health.DEGRADED, Subject(gpu="1"), "3 errors", "watch", since=1.0)
    later = Finding("r", Health.FAILED, Subject(gpu="1"), "9 errors", "drain", since=2.0)
    other = Finding("r", Health.FAILED, Subject(gpu="2"), "9 errors", "drain", since=2.0)
    assert first.key == later.key
    assert first.key != other.key


def test_an_absent_value_has_a_reason_and_a_detail() -> None:
    assert str(Absent(Why.DENIED, "run as root")) == "denied: run as root"
    assert str(Absent(Why.LOST)) == "lost"


def test_text_is_utf8_with_or_without_a_byte_order_mark() -> None:
    assert utf8("\ufeffé\r\n".encode()) == utf8("é\r\n".encode()) == "é\r\n"
    with pytest.raises(NotText, match="line 2 has the byte 0xff"):
        utf8("\ufeffé\n".encode() + b"\xff")
