"""The process that talks to NVML: what it answers, with pipes of this process, and how it ends."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.patience import HANGS
from wirewatch.core.ports import Answer, Question
from wirewatch.hw.nvml import child, protocol
from wirewatch.hw.nvml.protocol import Hello, LibraryError, Reply, Source

NAME, BUG = Question("Name"), Question("Bug")
SCRIPT = """
import gc, os, sys, time
from wirewatch.core.ports import Answer
from wirewatch.hw.nvml import child

class Chatty:
    seconds = 0.0
    def answer(self, scope, questions):
        os.write(1, b"chatter")
        for one in questions:
            time.sleep(float(one.args[0]) if one.call == "Wait" else 0.0)
        return [Answer(gc.get_freeze_count())]

child._open = lambda source: Chatty()
child.LAST_WORDS = float(sys.argv[1])
child.main()
"""


class Library:
    """Answers with the scope, each question in half a second; a question is a bug."""

    seconds = 0.0

    def answer(self, scope: str | None, questions: Sequence[Question]) -> list[Answer]:
        if BUG in questions:
            raise RuntimeError("a bug of ours")
        self.seconds += 0.5 * len(questions)
        return [Answer(scope, 7.0) for _ in questions]


def served(source: Source, *jobs: tuple[str | None, tuple[Question, ...]]) -> list[bytes]:
    """The lines that it writes."""
    lines = b"".join((protocol.encode_source(source), *(protocol.encode_job(*job) for job in jobs)))
    reading, writing = os.pipe()
    child.serve(io.BytesIO(lines), writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().splitlines(keepends=True)


@pytest.mark.parametrize("timed", [True, False])
def test_each_job_has_one_reply_also_one_that_meets_a_bug(
    monkeypatch: pytest.MonkeyPatch, *, timed: bool
) -> None:
    monkeypatch.setattr(child, "_open", lambda _source: Library())
    hello, *replies = served(
        Source(timed=timed), (None, (NAME,)), ("GPU-1", (NAME, NAME)), ("GPU-1", (NAME, BUG))
    )
    us = 7.0 if timed else 0.0
    assert protocol.decode_hello(hello) == Hello()
    assert [protocol.decode_reply(line) for line in replies] == [
        Reply((Answer(None, us),), 0.5),
        Reply((Answer("GPU-1", us),) * 2, 1.0),
        Reply((), 0.0, "a bug of ours"),
    ]


def test_a_library_that_cannot_be_used_is_the_only_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_source: Source) -> child.Answerer:
        raise LibraryError(12)

    monkeypatch.setattr(child, "_open", refused)
    (hello,) = served(Source(), (None, (NAME,)))
    assert protocol.decode_hello(hello) == Hello(12, "missing: libnvidia-ml.so.1 not found (NVML error 12)")


def test_a_recording_answers_in_the_place_of_the_library() -> None:
    hello, reply = served(Source("h200x1-idle"), (None, (Question("Count"),)))
    assert protocol.decode_hello(hello) == Hello()
    assert [answer.value for answer in protocol.decode_reply(reply).answers] == [1]


def started(last_words: float, wait: float) -> subprocess.Popen[bytes]:
    """A child whose library chats; it was asked once, survived Ctrl-C, and works on a long job."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(last_words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    process.stdin.write(protocol.encode_source(Source()) + protocol.encode_job(None, (NAME,)))
    process.stdin.flush()
    assert protocol.decode_hello(process.stdout.readline()) == Hello()
    (answer,) = protocol.decode_reply(process.stdout.readline()).answers
    assert isinstance(answer.value, int)
    assert answer.value > 1000, "what was imported is looked through by each collection of garbage"
    process.send_signal(signal.SIGINT)
    process.stdin.write(protocol.encode_job(None, (Question("Wait", (str(wait),)),)))
    process.stdin.flush()
    return process


def test_it_dies_soon_after_its_parent_also_while_it_hangs() -> None:
    with started(0.05, 60.0) as process:
        assert process.stdin
        process.stdin.close()
        assert process.wait(HANGS) == -signal.SIGKILL


def test_the_job_in_hand_is_answered_when_the_parent_is_gone_and_chatter_is_no_answer() -> None:
    with started(HANGS, 0.1) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.close()
        (reply,) = process.stdout.read().splitlines()
        assert json.loads(reply)[1] == ""
        assert (process.wait(HANGS), process.stderr.read()) == (0, b"chatter" * 2)
