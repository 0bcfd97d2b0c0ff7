"""JSON that nccl-tests writes with -J: whole, cut, one after the other, and among text."""

import io
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
from tests.rows import each
from wirewatch.core.types import Health
from wirewatch_lab.study import nccljson, runs
from wirewatch_lab.study.basis import RunGrounds
from wirewatch_lab.study.judge import judge
from wirewatch_lab.study.nccljson import Assembler, mixed_lines, read_document
from wirewatch_lab.study.nccllog import read_log
from wirewatch_lab.study.nccltests import Reader
from wirewatch_lab.study.points import to_study
from wirewatch_lab.study.runs import NAMELESS, BenchmarkRun, shortfall

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
BOUND = "the run's own bound on the average (NCCL_TESTS_MIN_BW) was not reached"
LAST = "NCCL's last message: {}"
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
    found = judge(run, RunGrounds({"NCCL_NVLS_ENABLE": "0"}).basis)
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
    sizes = judge(run, RunGrounds({"NCCL_NVLS_ENABLE": "0"}).basis).sizes
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
        assert reader.lines == whole[:at].count("\n") + 1
        assert shortfall(run) == ("" if done == 2 else f"its table stops at {1 << 24} of {1 << 26} bytes")


@each("other", ['{"a": 1}', "{", "{\n", '{"results": 7}', '{"version": {"version": [[[[[[[[[[[', "{}"])
def test_what_is_no_document_of_nccl_tests_takes_nothing_with_it(other: str) -> None:
    table = "\n".join(printed.lines(Job()))
    reader = read_text(f"{other}\n{table}\n")
    assert reader.rows == 2


def test_a_document_nests_eight_deep_and_no_deeper() -> None:
    for deep, foreign in ((7, False), (8, True)):
        document = Assembler()
        assert document.take('{"version": ' + "[" * deep) is None
        assert document.foreign is foreign


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ('{"a": "' + "x" * 16_000, False), ('{"a": "' + "x" * 17_000, True),
        ('{"a": "' + "x" * 17_000 + '", "results": [', False),
    ],
    ids=["short", "long", "long with a name of ours"],
)  # fmt: skip
def test_a_document_shows_one_of_its_names_soon(text: str, foreign: bool) -> None:  # noqa: FBT001
    document = Assembler()
    assert document.take(text) is None
    assert document.foreign is foreign


@settings(max_examples=examples(100))
@given(damaged(*FORMS.values()))
def test_damage_makes_no_row(text: str) -> None:
    reader = read_text(text)
    sizes = {row.size_bytes for run in reader.runs for row in run.rows}
    assert sizes <= {1 << 24, 1 << 26}


def changed(**members: Any) -> str:
    return json.dumps({**deepcopy(DOCUMENT), **members})


def configured(**members: Any) -> BenchmarkRun:
    return only(read_text(changed(config={**DOCUMENT["config"], **members})))


@pytest.mark.parametrize(
    "text", [changed(results={}), changed(config=None).replace('"config": null, ', ""), f"[{changed()}]"],
    ids=["results are no list", "no config", "a list of documents"],
)  # fmt: skip
def test_a_document_that_lacks_one_thing_is_none_of_nccl_tests(text: str) -> None:
    assert read_document(text, 1) is None


def test_sizes_go_by_a_factor_or_by_bytes() -> None:
    by_factor = configured()
    assert (by_factor.parameters["step"], by_factor.parameters["step by"]) == ("4", "factor")
    config = {name: value for name, value in DOCUMENT["config"].items() if name != "step_factor"}
    by_bytes = only(read_text(changed(config={**config, "step_bytes": 1 << 20})))
    assert (by_bytes.parameters["step"], by_bytes.parameters["step by"]) == ("1048576", "bytes")


@each(
    ("threads", "gpus", "each"),
    [("2", 2, 4), ("1", 1, 1), ("\u0662", 2, 1), ("1234567890", 1, 1), ("-2", 2, 1), (None, 2, 1)],
    ids=["both", "one", "a digit of another script", "ten digits", "a sign", "no text"],
)
def test_each_process_has_its_threads_times_its_gpus(threads: str | None, gpus: int, each: int) -> None:
    device = DOCUMENT["config"]["devices"][0]
    config = {**DOCUMENT["config"], "nthreads": threads, "ngpus": gpus, "devices": [device]}
    run = read_document(changed(config=config, results=[]), 1)
    assert run is not None
    assert [(one.rank, one.device, one.bus_id) for one in run.devices] == [
        (n, n, "" if n else "0000:00:06") for n in range(each)
    ]


def test_devices_without_a_name_are_said_to_have_none() -> None:
    device = {
        name: value for name, value in DOCUMENT["config"]["devices"][0].items() if name != "device_info"
    }
    run = read_document(changed(config={**DOCUMENT["config"], "devices": [device]}, results=[]), 1)
    assert run is not None
    assert {one.product for one in run.devices} == {NAMELESS}


def test_a_list_of_devices_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MOST_RANKS", 8)
    devices = DOCUMENT["config"]["devices"]
    for listed, kept in ((devices, 8), ([*devices, *devices], 8)):
        run = read_document(changed(config={**DOCUMENT["config"], "devices": listed}, results=[]), 1)
        assert run is not None
        assert len(run.devices) == kept


@each(
    ("field", "value", "rows"),
    [
        ("size", "\u0662", 1), ("size", "1" * 19, 1), ("size", "-8", 1), ("size", None, 1), ("count", "x", 1),
        ("out_of_place", None, 1), ("type", "flout", 1), ("experiment_name", "mine", 2),
    ],
)  # fmt: skip
def test_a_result_that_is_no_row_is_counted(field: str, value: object, rows: int) -> None:
    results = deepcopy(DOCUMENT["results"])
    results[0][field] = value
    results[0]["in_place"] = None
    run = read_document(changed(results=results), 1)
    assert run is not None
    assert (len(run.rows), run.unread) == (rows, 2 - rows)


def test_a_number_that_fits_into_no_row_is_counted() -> None:
    result = deepcopy(DOCUMENT["results"][0])
    result |= {"size": f"{4 * 10**25}", "count": f"{10**25}", "in_place": None}
    result["out_of_place"] |= dict.fromkeys(("time", "alg_bw", "bus_bw"), "nan")
    run = read_document(changed(results=[result]), 1)
    assert run is not None
    assert (len(run.rows), run.unread) == (0, 1)


@each(
    ("members", "ended", "remarks"),
    [
        ({}, True, []),
        ({"end_time": None}, True, []),
        ({"out_of_bounds": {}}, False, []),
        ({"average_bus_bandwidth": {"okay": "false"}}, True, [BOUND]),
        (
            {"errors": ["first", " ", None, *"abcde", "x" * 300]},
            True,
            [*map(LAST.format, ("first", *"abcd"))],
        ),
        ({"errors": ["x" * 300]}, True, [LAST.format("x" * 200)]),
        ({"errors": "none"}, True, []),
    ],
)
def test_the_end_of_a_document(members: dict[str, Any], ended: bool, remarks: list[str]) -> None:  # noqa: FBT001
    run = read_document(changed(**members), 1)
    assert run is not None
    assert (run.ended, run.remarks) == (ended, remarks)


def test_a_document_without_a_time_of_its_end_has_not_ended() -> None:
    document = {name: value for name, value in DOCUMENT.items() if name != "end_time"}
    assert not only(read_text(json.dumps(document))).ended


def test_registered_buffers_are_asked_for_by_their_option() -> None:
    assert only(read_text(changed())).registered
    assert not only(read_text(changed(args=["./build/all_reduce_perf"]))).registered


@each(
    ("args", "op", "op_from"),
    [
        (["/opt/all_gather_perf/all_reduce_perf"], "all_reduce", "its arguments"),
        (["./hypercube_perf"], "hypercube", "its arguments"),
        (["./my_perf"], "all_reduce", "its columns"),
        ([], "all_reduce", "its columns"),
        ("all_reduce_perf", "all_reduce", "its columns"),
        ([7], "all_reduce", "its columns"),
    ],
)
def test_a_program_names_its_operation_or_its_columns_do(args: object, op: str, op_from: str) -> None:
    run = only(read_text(changed(args=args)))
    assert (run.op, run.op_from) == (op, op_from)


def test_a_line_without_an_end_is_looked_at_once_and_a_document_after_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nccljson, "LINE", 64)
    whole = FORMS["as people format it"]
    reader = read_text("x" * 200 + "\n" + whole)
    assert (len(reader.runs), reader.rows, reader.not_understood) == (1, 2, 1)
    assert reader.first[0].why == "a line that is too long"
    # What is at the limit is whole, with its end or at the end of the file.
    for text in ("y" * 63 + "\n", "y" * 63):
        assert read_text(text).not_understood == 0


TABLE = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1   1626.5    0.64    1.24      0   2302.3    0.46    0.87      0
"""  # noqa: E501
LOGGED = "node-0:1000:2000 [0] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/1/GDRDMA"
WRAPPED = {
    "CRI": "2026-05-05T06:16:47.123456789Z stdout F {}\n",
    "CRI with an offset": "2026-05-05T06:16:47.123+02:00 stderr F {}\n",
    "docker's json-file": '{{"log":"{}\\n","stream":"stderr","time":"2026-05-05T06:16:47.1Z"}}\n',
    "journald": '{{"__REALTIME_TIMESTAMP":"1","MESSAGE":"{}","_PID":"7"}}\n',
    "a cloud's log": '{{"insertId":"x","jsonPayload":{{"message":"{}"}},"severity":"INFO"}}\n',
    "Loki": '{{"labels":{{"pod":"a"}},"line":"{}","timestamp":"2026"}}\n',
    "srun --label": "12: {}\n",
    "mpirun": "[1,12]<stderr>:{}\n",
    "mpiexec -l": "[12] {}\n",
    "Ray": "(RayTrainWorker pid=615, ip=10.72.7.6) {}\n",
    "kubectl": "2026-05-05T06:16:47.123456789Z {}\n",
    "syslog": "May  5 06:16:47 node-0 python[1000]: {}\n",
    "colours": "\x1b[36m{}\x1b[0m\n",
}


@pytest.mark.parametrize("form", WRAPPED.values(), ids=WRAPPED)
def test_a_log_is_read_in_what_wraps_its_lines(form: str) -> None:
    text = "".join(form.format(line) for line in ("step 1", LOGGED, "step 2"))
    found = read_log(mixed_lines(io.BytesIO(text.encode()), Reader()))
    (hop,) = found.rings[0].hops
    assert (hop.send.host, hop.send.nic, hop.send.line, hop.send.gpudirect) == ("node-0", 1, 2, True)
    assert found.line_count == 3


def test_a_line_that_a_container_runtime_cut_is_one_line() -> None:
    start = "2026-05-05T06:16:47.123456789Z stdout "
    text = f"{start}P {LOGGED[:40]}\n{start}P {LOGGED[40:60]}\n{start}F {LOGGED[60:]}\n{start}P end"
    found = list(mixed_lines(io.BytesIO(text.encode()), Reader()))
    assert found == [LOGGED, "end"]


@pytest.mark.parametrize("form", [WRAPPED["CRI"], WRAPPED["docker's json-file"]])
def test_a_table_is_read_in_what_wraps_its_lines(form: str) -> None:
    text = "".join(form.format(line) for line in TABLE.splitlines())
    assert len(only(read_text(text)).rows) == len(only(read_text(TABLE)).rows) == 1


def test_a_document_of_nccl_tests_on_one_line_stays_one() -> None:
    reader = Reader()
    lines = list(mixed_lines(io.BytesIO(f"{json.dumps(DOCUMENT)}\n".encode()), reader))
    assert (lines, len(reader.runs)) == ([""], 1)


def test_objects_without_a_line_of_text_are_passed_over() -> None:
    text = '{"loss": 2.5, "step": 7}\n{"a": {"b": {"c": {"d": {"log": "too deep"}}}}}\n[1]\n{"log": 7}\n'
    assert "too deep" not in list(mixed_lines(io.BytesIO(text.encode()), Reader()))
