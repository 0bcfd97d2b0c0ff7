"""NCCL's logs and topology files, given any text and damaged good ones: none raises, none skips."""

import io
import re

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import damaged
from tests.lab.study.topologies import gpu, nic, system
from tests.node.nccl.texts import V2_21, V2_28
from wirewatch.core.types import Absent, Why
from wirewatch_lab.study.nccllog import read_log
from wirewatch_lab.study.topologyxml import read_topology


@given(st.text() | damaged(V2_21, V2_28))
def test_every_line_of_a_log_is_another_s_or_has_messages_that_are_read_or_counted(text: str) -> None:
    told = read_log(text.split("\n"))
    assert told.line_count == text.count("\n") + 1
    assert told.messages == len(
        re.findall(r"NCCL (?:INFO|WARN|ATTN|TRACE|CALL|ABORT)(?= |$)", text, re.MULTILINE)
    )
    assert told.line_count - told.foreign <= told.messages
    assert (told.messages == 0) == (told.foreign == told.line_count)
    assert told.not_understood + told.other <= told.messages


@given(st.binary() | damaged(system([gpu("0000:1b:00.0"), nic("0000:18:00.0", "mlx5_0")]).decode()))
def test_any_file_is_a_topology_or_says_in_a_line_why_not(body: bytes | str) -> None:
    told = read_topology(io.BytesIO(body.encode("utf-8", "replace") if isinstance(body, str) else body))
    if isinstance(told, Absent):
        assert told.why is Why.MALFORMED
        assert len(told.detail.splitlines()) == 1
    else:
        assert told.lines()
