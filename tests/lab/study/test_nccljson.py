"""JSON that nccl-tests writes with -J: whole, cut, one after the other, and among text."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuzzing import damaged
from tests.lab.study import printed
from tests.lab.study.printed import Job
from tests.lab.study.test_nccltests import only, read_text
from wirewatch.core.types import Health
from wirewatch_lab.study.judge import by_header, judge
from wirewatch_lab.study.points import to_study
from wirewatch_lab.study.runs import shortfall

DOCUMENT: dict[str, Any] = {
    "version": 3,
    "start_time": "2026-11-21 01:06:30",
    "args": ["./build/all_reduce_perf", "-b", "16M", "-e", "64M", "-R", "1"],
    "env": ["HOME=/", 'KEY={"secret": [1', "NCCL_ALGO=Ring", "NCCL_DEBUG=WARN", "NCCL_MAX_NCHANNELS=8"],
    "nccl_version": 22809,
    "config": {
        "nthreads": 1, "ngpus": 4, "minimum_bytes": 1 << 24, "maximum_bytes": 1 << 26, "step_factor": 4,
        "warmup_iters": 1, "iterations": 20, "aggregated_iterations": 1, "validation": 1, "graph": 1,
        "blocking_collectives": "false", "parallel_init": "false",
        "devices": [
            {
                "rank": 4 * n, "group": 0, "pid": 7, "hostname": "n1", "device": 4 * n,
                "device_hex": "0000:00:06", "device_info": "NVIDIA H200",
            }
            for n in range(2)
        ],
    },
    "results": [
        {
            "size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
            "out_of_place": {
                "time": out, "alg_bw": size / out / 1e3, "bus_bw": 1.75 * size / out / 1e3, "nwrong": 0.0,
            },
            "out_of_place_per_iter": {"times_us": [1.0, 2.0], "per_process_max_times_us": [[1.0]]},
            "in_place": {"time": "nan", "alg_bw": "nan", "bus_bw": "nan", "nwrong": None},
            "actual_iterations": 20, "experiment_name": "",
        }
        for size, out in ((1 << 24, 118.38), (1 << 26, 363.88))
    ],
    "out_of_bounds": {"count": 0, "okay": "true"},
    "average_bus_bandwidth": {"bandwidth": 285.38, "okay": "unchecked"},
    "errors": [""],
    "end_time": "2026-11-21 01:06:36",
}  # fmt: skip
FORMS = {
    "as nccl-tests writes it": json.dumps(DOCUMENT, separators=(",", ":")),
    "as people format it": json.dumps(DOCUMENT, indent=1) + "\n",
    "sorted": json.dumps(DOCUMENT, sort_keys=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_document_is_a_run(form: str) -> None:
    run = only(read_text(FORMS[form]))
    assert (run.op, run.ranks, run.hosts, run.nccl, run.launch) == (
        "all_reduce",
        8,
        {"n1": 8},
        "22809",
        "graph",
    )
    assert [row.size_bytes for row in run.rows] == [1 << 24, 1 << 26]
    seconds = [row.out_of_place.seconds for row in run.rows if row.out_of_place]
    assert seconds == pytest.approx([118.38e-6, 363.88e-6])
    assert (run.ended, run.out_of_bounds, run.average, run.differing) == (True, 0, 285.38e9, 0)
    found = judge(run, by_header({"NCCL_NVLS_ENABLE": "0"}))
    assert (found.health, len(found.sizes)) == (Health.OK, 2)


def test_only_settings_of_nccl_are_kept_of_an_environment() -> None:
    """The rest may be a secret."""
    run = only(read_text(FORMS["sorted"]))
    assert "secret" not in repr(run)
    (curve,) = to_study([run], "it", 0.0).curves
    configuration = curve.configuration
    assert (configuration.algorithm, configuration.protocol, configuration.registered) == (
        "Ring",
        "auto",
        True,
    )
    assert configuration.settings == (("NCCL_MAX_NCHANNELS", "8"),)


def test_documents_one_after_the_other_and_among_text() -> None:
    one, table = FORMS["as nccl-tests writes it"], "\n".join(printed.lines(Job()))
    for text in (
        one + one,
        f"{one}\n{one}\n",
        f"{one}{table}\n",
        f"{table}\n{one}",
        f"[1,0] x\n{table}\n{one}\nbye",
    ):
        reader = read_text(text)
        assert (len(reader.runs), reader.rows, reader.not_understood) == (2, 4, 0), text[:20]
        assert all(run.ended for run in reader.runs)


def test_the_first_version_writes_two_words_wrong() -> None:
    document = {**DOCUMENT, "version": 1, "average_bus_bandwidith": {"bandwidith": 285.38, "okay": "false"}}
    del document["average_bus_bandwidth"]
    run = only(read_text(json.dumps(document)))
    assert run.average == 285.38e9
    assert "NCCL_TESTS_MIN_BW" in run.remarks[0]


def test_the_time_of_processors_is_none_of_an_operation() -> None:
    document = deepcopy(DOCUMENT)
    for result in document["results"]:
        result["out_of_place"]["cpu_time"] = 7.5
        del result["out_of_place"]["time"], result["in_place"]
    run = only(read_text(json.dumps(document)))
    assert run.cputime
    sizes = judge(run, by_header({"NCCL_NVLS_ENABLE": "0"})).sizes
    assert round(sizes[0].busbw / 1e9, 1) == 248.0


def test_infinity_is_no_json_and_read_all_the_same() -> None:
    text = FORMS["as nccl-tests writes it"].replace('"alg_bw":"nan"', '"alg_bw":inf')
    assert len(only(read_text(text)).rows) == 2


@given(st.integers(200, len(FORMS["as nccl-tests writes it"]) - 1))
def test_a_document_that_is_cut_is_a_run_that_failed_with_the_rows_that_are_whole(at: int) -> None:
    whole = FORMS["as nccl-tests writes it"]
    reader = read_text(whole[:at])
    done = whole[:at].count('"experiment_name":""}')
    assert reader.rows == done
    if done:
        (run,) = reader.runs
        assert run.failures == ["its JSON document stops in the middle"]
        assert not run.ended
        assert shortfall(run) == ("" if done == 2 else f"its table stops at {1 << 24} of {1 << 26} bytes")


@pytest.mark.parametrize(
    "other", ['{"a": 1}', "{", "{\n", '{"results": 7}', '{"version": {"version": [[[[[[[[[[[', "{}"]
)
def test_what_is_no_document_of_nccl_tests_takes_nothing_with_it(other: str) -> None:
    table = "\n".join(printed.lines(Job()))
    reader = read_text(f"{other}\n{table}\n")
    assert reader.rows == 2


@settings(max_examples=examples(100))
@given(damaged(*FORMS.values()))
def test_damage_makes_no_row(text: str) -> None:
    reader = read_text(text)
    sizes = {row.size_bytes for run in reader.runs for row in run.rows}
    assert sizes <= {1 << 24, 1 << 26}
