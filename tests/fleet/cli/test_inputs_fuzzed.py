"""Inputs of the fleet, given any text and damaged good ones: a value, or the error that is documented."""

from pathlib import Path

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuzzing import DEEP, ODD, Parser, damaged, from_file, of_option, on_bytes, reads
from tests.rows import each
from wirewatch_fleet.cli.simulate import FaultOption
from wirewatch_fleet.pairs.document import RoundsError, pairs_document, read_rounds
from wirewatch_fleet.pairs.model import PairEnd
from wirewatch_fleet.prometheus import AccessError, NoPrometheus, result_of
from wirewatch_fleet.prometheus import address as promaddress
from wirewatch_fleet.rounds.answer import PeerAnswer, encode_answer, run_of
from wirewatch_fleet.rounds.plan import PairWork, PlanError, decode_pair_plan, encode_pair_plan, pair_plan

ROUNDS_FILE = """{"schema": "wirewatch.fleet-rounds/1", "at": 1764000000, "seed": 0,
 "members": [{"name": "n1", "leaf": "a"}, {"name": "n2", "leaf": "b"}, {"name": "n3", "leaf": "b"}],
 "rounds": [{"number": 1, "purpose": "across", "resting": ["n3"],
  "runs": [{"first": "n1", "second": "n2", "sends": 180e9, "receives": 179e9, "all_reduce": 160e9,
            "rails": {"mlx5_0": [46.1e9, 46.3e9], "mlx5_1": [46.1e9, null]}}]}]}"""

PAIR_PLAN = encode_pair_plan(
    pair_plan("a", "b", "10.0.0.1:28900", PairWork(environment={"NCCL_IB_HCA": "mlx5"}))
)

PEER_ANSWERS = "srun: job 7 queued\n" + encode_answer(
    PeerAnswer(
        "wirewatch.fleet-peer/1", 1e9, "a", "a", "b", sends=4e9, receives=3e9, rails={"0": (2e9, None)},
        end=PairEnd("NET/IB", gpudirect=True, errors={"mlx5_0:1 symbol_error": 2}),
    )
)  # fmt: skip


def _pairs_of(path: Path) -> object:
    return pairs_document(read_rounds(path))


PROMETHEUS = """{"status":"success","warnings":["x"],"data":{"resultType":"vector",
"result":[{"metric":{"node":"n1"},"value":[1795000000.1,"4"]}]}}"""


def of_prometheus(body: bytes) -> object:
    return result_of("http://h", 200, body), result_of("http://h", 422, body)


PARSERS = {
    "address of Prometheus": Parser(promaddress, ("https://h:9090/p", "http://[::1]"), (AccessError,)),
    "answer of Prometheus": Parser(on_bytes(of_prometheus), (PROMETHEUS,), (NoPrometheus,)),
    "fleet's rounds": Parser(from_file(_pairs_of), (ROUNDS_FILE,), (RoundsError,)),
    "a pair's plan": Parser(decode_pair_plan, (PAIR_PLAN,), (PlanError,)),
    "a pair's answers": Parser(lambda text: run_of("a", "b", text), (PEER_ANSWERS,)),
    "fault": Parser(of_option(FaultOption()), ("gpu-lost=3", "silent=5@10m-20m"), (click.BadParameter,)),
}  # fmt: skip


@each("name", PARSERS)
def test_odd_texts_are_values_or_the_one_error(name: str) -> None:
    for text in (*ODD, *DEEP):
        reads(PARSERS[name], text)


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_any_text_is_a_value_or_the_one_error(name: str, data: st.DataObject) -> None:
    parser = PARSERS[name]
    reads(parser, data.draw(damaged(*parser.good) | st.text(), "text"))
