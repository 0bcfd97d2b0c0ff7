"""What the daemon and its NVML process say to each other."""

import errno
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.core.strategies import ABSENT, JSON, QUESTIONS
from tests.rows import each
from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Why
from wirewatch.hw.files import absent_errno
from wirewatch.hw.nvml.protocol import (
    CODES,
    SESSION_ENDED,
    Hello,
    LibraryError,
    Reply,
    Source,
    absent_code,
    decode_hello,
    decode_job,
    decode_reply,
    decode_source,
    encode_hello,
    encode_job,
    encode_reply,
    encode_source,
)

SECONDS = st.floats(0, 1e9)
TIMES = st.floats(0, 1e6).map(lambda us: round(us, 1))
REPLIES = st.builds(
    Reply,
    st.lists(st.builds(Answer, st.one_of(JSON, ABSENT), TIMES), max_size=5).map(tuple),
    SECONDS,
    st.text(max_size=30),
)


def _is_reply(line: bytes) -> bool:
    try:
        decode_reply(line)
    except ValueError:
        return False
    return True


def _is_one_line(line: bytes) -> bool:
    return line.endswith(b"\n") and line.count(b"\n") == 1


@given(st.builds(Source, st.text(), st.lists(st.text(), max_size=3).map(tuple), st.booleans(), SECONDS))
def test_a_source_arrives_as_it_was_sent(source: Source) -> None:
    line = encode_source(source)
    assert _is_one_line(line)
    assert decode_source(line) == source


@given(st.builds(Hello, st.integers(0, 999), st.text()))
def test_a_first_word_arrives_as_it_was_sent(hello: Hello) -> None:
    line = encode_hello(hello)
    assert _is_one_line(line)
    assert decode_hello(line) == hello


@given(st.none() | st.text(), st.lists(QUESTIONS, max_size=5).map(tuple))
def test_a_job_arrives_as_it_was_sent(scope: str | None, questions: tuple[Question, ...]) -> None:
    line = encode_job(scope, questions)
    assert _is_one_line(line)
    told, asked = decode_job(line)
    assert (told, tuple(asked)) == (scope, questions)


@given(REPLIES)
def test_a_reply_arrives_as_it_was_sent(reply: Reply) -> None:
    line = encode_reply(reply)
    assert _is_one_line(line)
    assert decode_reply(line) == reply


@given(REPLIES)
def test_the_times_of_the_calls_may_be_left_out(reply: Reply) -> None:
    told = decode_reply(encode_reply(reply, timed=False))
    assert [a.value for a in told.answers] == [a.value for a in reply.answers]
    assert {a.us for a in told.answers} <= {0.0}
    assert (told.seconds, told.broken) == (reply.seconds, reply.broken)


@each("line", [b"", b"\n", b"Segmentation fault\n", b"\xff\xfe", b'[0,"",', b'[0,""]'])
def test_a_line_that_is_no_reply_is_refused(line: bytes) -> None:
    assert not _is_reply(line)


@each("document", [None, True, 7, 0.5, {}, [], [0], [0, ""], {"seconds": 0}])
def test_a_document_that_is_no_reply_is_refused_as_such(document: object) -> None:
    assert not _is_reply(json.dumps(document).encode())


@pytest.mark.parametrize(("place", "junk"), [(0, None), (0, []), (2, None), (2, 5)])
def test_a_reply_with_something_else_inside_is_refused_as_such(place: int, junk: object) -> None:
    document = json.loads(encode_reply(Reply((Answer(8, 7.6),), 0.5)))
    document[place] = junk
    assert not _is_reply(json.dumps(document).encode())


@each(
    ("code", "why"),
    [
        (3, Why.UNSUPPORTED),
        (4, Why.DENIED),
        (10, Why.TIMEOUT),
        (12, Why.MISSING),
        (13, Why.UNSUPPORTED),
        (15, Why.LOST),
        (16, Why.LOST),
        (999, Why.MALFORMED),
        (12345, Why.MALFORMED),
    ],
)
def test_an_nvml_code_becomes_a_reason_that_keeps_the_code(code: int, why: Why) -> None:
    absent = absent_code(code)
    assert (absent.why, absent.code) == (why, code)
    assert str(code) in absent.detail


def test_a_session_never_ends_for_what_only_a_field_or_a_gpu_says() -> None:
    assert {CODES[code][0] for code in SESSION_ENDED}.isdisjoint({Why.UNSUPPORTED, Why.DENIED, Why.TIMEOUT})


def test_a_library_that_cannot_be_used_says_so_in_words() -> None:
    assert "libnvidia-ml.so.1" in str(LibraryError(12))


@each(
    ("number", "why"),
    [
        (errno.ENOENT, Why.MISSING),
        (errno.ENODEV, Why.LOST),
        (errno.EACCES, Why.DENIED),
        (errno.EPERM, Why.DENIED),
        (errno.EINVAL, Why.UNSUPPORTED),
        (errno.ETIMEDOUT, Why.TIMEOUT),
        (errno.EIO, Why.MALFORMED),
        (99_999, Why.MALFORMED),
    ],
)
def test_an_errno_becomes_a_reason_that_names_the_file_and_keeps_the_number(number: int, why: Why) -> None:
    absent = absent_errno(number, "/sys/class/net/eth0/speed")
    assert (absent.why, absent.code) == (why, number)
    assert "/sys/class/net/eth0/speed" in absent.detail
