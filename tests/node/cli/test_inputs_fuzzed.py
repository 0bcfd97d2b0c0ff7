"""Files, options and others' answers, given any text and damaged good ones: a value, or the one error."""

import io
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.examples import examples
from tests.lab.advice.nearby import gpus
from tests.lab.study.printed import Job, lines
from tests.lab.study.sweeps import CURVES, Node, header
from tests.lab.study.test_nccljson import FORMS
from tests.lab.study.topologies import gpu, nic, switch, system
from tests.node.core.test_parsers_fuzzed import damaged
from tests.node.jobs.explain.drawn import evidence, job, late
from tests.node.verdict.drift.test_diff_recordings import recorded
from tests.processes import ROOT
from wirewatch import config
from wirewatch.catalogue import components
from wirewatch.cli.check.daemon import daemon_address
from wirewatch.cli.jobs.explain import NoOneJob, cpu_seconds, selected
from wirewatch.cli.options import Duration, owner
from wirewatch.cli.probe import Primitive, Size, Switches
from wirewatch.core.hostlist import HostlistError, expanded
from wirewatch.core.ports import Answer
from wirewatch.core.probe import PRIMITIVES, Plan, decode_plan, encode_plan
from wirewatch.core.topology import NicPart, NicPath, Topology
from wirewatch.core.types import Absent, OperatorNote, Unusable, Why
from wirewatch.daemon.baselines import read_baseline, save_baseline
from wirewatch.daemon.notify import Notifier
from wirewatch.daemon.persistence import read_ledger
from wirewatch.documents.jobs import JOBS, ExplainedJob, JobsDocument
from wirewatch.documents.state import TOPOLOGY as TOPOLOGIES
from wirewatch.documents.state import TopologyDocument
from wirewatch.hw.nvml.protocol import Hello, Reply, decode_hello, decode_reply, encode_hello, encode_reply
from wirewatch.hw.overlay import BUNDLED as OVERLAYS
from wirewatch.hw.overlay import OverlayError, load_overlay
from wirewatch.hw.recording import BUNDLED, RecordingError, load_recording
from wirewatch.jobs.explain.walls import decide
from wirewatch.kubernetes.apiserver import EndpointError, UnexpectedReply, condition_in, endpoint, message_of
from wirewatch.kubernetes.outcome import retry_after
from wirewatch.nccl.lists import ALGO, ListError, allowed
from wirewatch.nccl.log import parse_nccl_log
from wirewatch.nccl.settings import allows_hca
from wirewatch.nccl.variables import meant, reader, variable
from wirewatch.probe.remote import detail
from wirewatch.server.webconfig import WebConfigError, parse
from wirewatch.verdict.drift.baseline import Baseline
from wirewatch_fleet.cli.simulate import FaultOption
from wirewatch_fleet.pairs.document import RoundsError, pairs_document, read_rounds
from wirewatch_fleet.pairs.model import PairEnd
from wirewatch_fleet.prometheus import AccessError, NoPrometheus, result_of
from wirewatch_fleet.prometheus import address as promaddress
from wirewatch_fleet.rounds.answer import PeerAnswer, encode_answer, run_of
from wirewatch_fleet.rounds.plan import PairWork, PlanError, decode_pair_plan, encode_pair_plan, pair_plan
from wirewatch_lab.advice.described import DescriptionError, described
from wirewatch_lab.advice.gpunic.mapping import map_nics
from wirewatch_lab.advice.gpunic.settings import cpu_bindings, job_settings
from wirewatch_lab.advice.placement.cluster import ClusterError, NodePool, read_cluster, with_slurm_topology
from wirewatch_lab.cli.advise.amounts import Bytes, Count
from wirewatch_lab.cli.advise.gpu_nic import wrapper
from wirewatch_lab.cli.advise.machines import ChosenMachine
from wirewatch_lab.cli.advise.nccl_env import known_version, of_named_file
from wirewatch_lab.cli.advise.placement import GroupSizes
from wirewatch_lab.cli.grids import Numbers, Sizes, Varied, Words
from wirewatch_lab.cli.parse import settings as nccl_settings
from wirewatch_lab.study.export import export, read_study
from wirewatch_lab.study.judge import by_header, judge
from wirewatch_lab.study.nccljson import mixed_lines
from wirewatch_lab.study.nccllog import read_log
from wirewatch_lab.study.nccltests import Reader
from wirewatch_lab.study.records import RecordsError, read_records, study_of
from wirewatch_lab.study.topologyxml import read_topology

LONG = "9" * 5000
"""More digits than Python turns into a number."""
PIT = "[" * 5000
NAME = "input"


@dataclass(frozen=True)
class Parser:
    """One input: what reads it, good texts, and the errors that it documents."""

    read: Callable[[str], object]
    good: tuple[str, ...]
    errors: tuple[type[Exception], ...] = ()


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


def from_file(read: Callable[[Path], object], name: str = NAME) -> Callable[[str], object]:
    """A parser of a file, given what is in it."""

    def parser(text: str) -> object:
        with TemporaryDirectory() as folder:
            file = Path(folder) / name
            file.write_bytes(text.encode("utf-8", "surrogatepass"))
            return read(file)

    return parser


def on_bytes(read: Callable[[bytes], object]) -> Callable[[str], object]:
    return lambda text: read(text.encode("utf-8", "surrogatepass"))


def of_variable(name: str, **others: str) -> Callable[[str], object]:
    """The service manager's variables, one of them with this value."""
    return lambda text: Notifier.of_environment({"NOTIFY_SOCKET": "/run/n", **others, name: text})


@cache
def baseline() -> str:
    with TemporaryDirectory() as folder:
        file, said = Path(folder) / "baseline.json", OperatorNote("ada", "as delivered", 1e9)
        assert save_baseline(file, Baseline(recorded("h200x4-idle"), said, "learned"), 1e9) == ""
        return file.read_text("utf-8")


def judged(body: bytes) -> object:
    """All runs in an output of nccl-tests."""
    reader = Reader()
    lines = list(mixed_lines(BytesIO(body), reader))
    return lines, [judge(run, by_header({})) for run in reader.runs]


def recording(file: Path) -> object:
    moments = BUNDLED / "h200x1-idle" / "moments.jsonl.gz"
    os.link(moments, file.parent / moments.name)
    return load_recording(str(file.parent))


TOML = (
    (ROOT / "deploy" / "compose" / "wirewatch.toml").read_text("utf-8")
    + """
[listen]
address = "127.0.0.1:9410"
socket = "/run/w.sock"
[policy.verdict]
fail_on = ["failed", "unknown"]
[collectors.nvlink]
interval = 15.0
[expect]
rdma_ports = 8
"""
)
WEB = """
basic_auth_users:
  prometheus: $2y$10$abcdefghijklmnopqrstuuW5oHF4iWZ1sc0nXnRRxnYjvOQHkQyWG
bearer_tokens:
  grafana: sha256:0000000000000000000000000000000000000000000000000000000000000000
http_server_config:
  headers: {X-Frame-Options: deny}
auth_excluded_paths: [/livez]
"""
CLUSTER = """
[[nodes]]
names = "gpu[001-016]"
gpus = 8
product = "H100"
memory_gb = 80.0
islands = [4, 4]
ports = "8xNDR"
rack = "r1"
busy = [1]
[[states]]
names = "gpu001"
health = "degraded"
"""
CLUSTER_JSON = (
    '{"nodes": [{"names": "a", "gpus": 4, "product": "GB200", "nvlink_domain": "d", "drained": true}]}'
)
SWITCHES = "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=tux[0-3]\nBlockName=b1 BlockIndex=0 Nodes=n[1-18]\n"
NODE = json.dumps(
    {
        "kind": "Node", "metadata": {"name": "n1"},
        "status": {"conditions": [{"type": "InterconnectHealthy", "status": "True", "reason": "Ok",
                                   "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }
)  # fmt: skip
PLAN = encode_plan(Plan("nccl", ("GPU-a", "GPU-b"), ((0, 1),)))
NCCL = (
    "node:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"
    "node:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    "node:7:9 [1] NCCL INFO NCCL_ALGO set by environment to Ring.\n"
    "node:7:9 [0] NCCL INFO comm 0x55 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n"
    "node:7:9 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}\n"
)
SYSTEM = system([switch("0000:10:00.0", gpu("0000:1b:00.0"), nic("0000:18:00.0", "mlx5_0"))]).decode()
TOPOLOGY = TOPOLOGIES.dump_json(
    TopologyDocument(
        "wirewatch.topology/1", 1e9,
        Topology(
            gpus(1), (NicPart("0x1", "mlx5_0", "MT4129", "28", gpus(1)[0].place, (("1", "InfiniBand"),)),),
            (), (NicPath("GPU-0", "mlx5_0", "PIX"),), 1, (),
        ),
    )
).decode()  # fmt: skip
MANIFEST = (BUNDLED / "h200x1-idle" / "manifest.json").read_text("utf-8")
HTTP_DATES = ("120", "Sun, 22 Nov 2026 22:00:00 GMT", "Sunday, 22-Nov-26 22:00:00 GMT", "1e3")
REPLY = encode_reply(Reply((Answer(5, 3.0), Answer(Absent(Why.LOST, "gone", 15))), 0.1)).decode()


@cache
def swept(name: str) -> str:
    """A file of a sweep that is complete."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "sweep"
        Node(place).sweep(header(CURVES[:1]))
        export(read_records(place), place)
        return (place / name).read_text("utf-8")


def jobs_text() -> str:
    """A daemon's answer about one running job."""
    one = evidence(job(late=late()))
    made = JobsDocument("wirewatch.jobs/1", 1e9, "live", [ExplainedJob(decide(one), one)])
    return JOBS.dump_json(made).decode()


def of_option(kind: click.ParamType[Any]) -> Callable[[str], object]:
    return lambda text: kind.convert(text, None, None)


def mapped(file: Path) -> object:
    """The RDMA ports of the GPUs in a topology file, and a script for its ranks."""
    machine = ChosenMachine(str(file), None, (), None, (), None).read()
    assert not isinstance(machine.locality, Absent)
    found = map_nics(machine.locality)
    if isinstance(found, Absent):
        return found
    return wrapper(found, job_settings(found), cpu_bindings(found, machine.locality))


PROMETHEUS = """{"status":"success","warnings":["x"],"data":{"resultType":"vector",
"result":[{"metric":{"node":"n1"},"value":[1795000000.1,"4"]}]}}"""


def of_prometheus(body: bytes) -> object:
    return result_of("http://h", 200, body), result_of("http://h", 422, body)


PARSERS = {
    "address": Parser(config.address, ("127.0.0.1:9410", "[::1]:80"), (config.ConfigError,)),
    "apiserver": Parser(lambda text: endpoint(text, "", "n1", {}), ("10.0.0.1:443",), (EndpointError,)),
    "amount of bytes": Parser(of_option(Bytes()), ("100MB", "1.5G", "16KiB", "8 B"), (click.BadParameter,)),
    "amount": Parser(of_option(Count()), ("70B", "1.5e9"), (click.BadParameter,)),
    "address of Prometheus": Parser(promaddress, ("https://h:9090/p", "http://[::1]"), (AccessError,)),
    "answer of Prometheus": Parser(on_bytes(of_prometheus), (PROMETHEUS,), (NoPrometheus,)),
    "baseline": Parser(from_file(read_baseline), (baseline(),)),
    "cpu times": Parser(cpu_seconds, ("7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0",)),
    "cluster": Parser(from_file(read_cluster), (CLUSTER, CLUSTER_JSON), (ClusterError,)),
    "check": Parser(from_file(lambda file: daemon_address(None, file)), (TOML,), (Unusable,)),
    "condition": Parser(on_bytes(lambda body: condition_in(body, "n1", 1e9)), (NODE,), (UnexpectedReply,)),
    "config": Parser(
        from_file(lambda file: config.load(file, components())), (TOML,), (config.ConfigError,)
    ),
    "fleet's rounds": Parser(from_file(_pairs_of), (ROUNDS_FILE,), (RoundsError,)),
    "a pair's plan": Parser(decode_pair_plan, (PAIR_PLAN,), (PlanError,)),
    "a pair's answers": Parser(lambda text: run_of("a", "b", text), (PEER_ANSWERS,)),
    "described machine": Parser(described, ("8xH100+8xNDR", "4 x l40s"), (DescriptionError,)),
    "duration": Parser(
        lambda text: Duration().convert(text, None, None), ("1.5h", "3s"), (click.BadParameter,)
    ),
    "hello": Parser(on_bytes(decode_hello), (encode_hello(Hello(3, "no")).decode(),), (ValueError,)),
    "job": Parser(lambda text: selected((), text), ("slurm:7", "pod:a", "4711", "pid:1"), (NoOneJob,)),
    "jobs": Parser(JOBS.validate_json, (jobs_text(),), (ValidationError,)),
    "ledger": Parser(from_file(lambda file: read_ledger(file, "b", 1e9)), ('{"version": 1, "entries": []}',)),
    "manifest": Parser(from_file(recording, "manifest.json"), (MANIFEST,), (RecordingError,)),
    "message": Parser(on_bytes(message_of), ('{"message": "forbidden"}',)),
    "nccl log": Parser(parse_nccl_log, (NCCL,)),
    "nccl summary": Parser(lambda text: read_log(text.split("\n")).lines(), (NCCL,)),
    "mapped topology": Parser(from_file(mapped), (SYSTEM, TOPOLOGY), (click.UsageError,)),
    "nccl topology": Parser(on_bytes(lambda body: read_topology(io.BytesIO(body))), (SYSTEM,)),
    "nccl-tests": Parser(on_bytes(judged), ("\n".join(lines(Job())), FORMS["sorted"])),
    "nccl environment": Parser(
        from_file(of_named_file),
        ("NCCL_A=1\n# x\nNCCL_B = 1\n", "export NCCL_A='1' NCCL_B=2 # x\nunset NCCL_A\n", "NCCL_A=1\0B=2\0"),
        (click.UsageError,),
    ),
    "nccl list": Parser(
        lambda text: allowed(ALGO, text), ("ring,tree;allgather:^nvls", "^Tree"), (ListError,)
    ),
    "nccl name": Parser(
        lambda text: (meant(text), reader(text), variable(text)), ("NCCL_BUFSIZE", "nccl-debug")
    ),
    "nccl version": Parser(
        lambda text: known_version(None, None, text), ("2.28.9", "v2.21"), (click.UsageError,)  # type: ignore[arg-type]
    ),
    "nccl setting": Parser(
        lambda text: nccl_settings(None, None, [text]), ("NCCL_ALGO=Ring",), (click.UsageError,)  # type: ignore[arg-type]
    ),
    "overlay": Parser(
        from_file(lambda file: load_overlay(str(file))),
        tuple((OVERLAYS / f"{name}.toml").read_text("utf-8") for name in ("nvlink-crc", "ib-port-flapping")),
        (OverlayError,),
    ),
    "owner": Parser(lambda text: owner(None, None, text), ("slurm:7", "pod:a"), (click.UsageError,)),  # type: ignore[arg-type]
    "plan": Parser(decode_plan, (PLAN,), (ValueError, TypeError)),
    "refusal": Parser(on_bytes(detail), ('{"detail": "not now"}',)),
    "reply": Parser(on_bytes(decode_reply), (REPLY,), (ValueError,)),
    "retry-after": Parser(lambda text: retry_after(text, 1.8e9), HTTP_DATES),
    "op": Parser(lambda text: Primitive().convert(text, None, None), PRIMITIVES, (click.BadParameter,)),
    "switches": Parser(
        lambda text: Switches().convert(text, None, None), ("on,off", "off"), (click.BadParameter,)
    ),
    "fault": Parser(of_option(FaultOption()), ("gpu-lost=3", "silent=5@10m-20m"), (click.BadParameter,)),
    "groups": Parser(of_option(GroupSizes()), ("tp=4,pp=2,replicas=3", "tp=8"), (click.BadParameter,)),
    "hostlist": Parser(expanded, ("gpu[001-016,020],a.b", "r[1-2]n[01-02]"), (HostlistError,)),
    "hcas": Parser(lambda text: allows_hca(text, "mlx5_0", 1), ("^=mlx5_0:1,mlx5_1", "mlx5")),
    "size": Parser(lambda text: Size().convert(text, None, None), ("256M", "1G"), (click.BadParameter,)),
    "slurm topology": Parser(
        from_file(lambda file: with_slurm_topology(NodePool("c", ()), file)), (SWITCHES,), (ClusterError,)
    ),
    "sizes": Parser(of_option(Sizes()), ("8:64K", "8:1G:4", "4,8M"), (click.BadParameter,)),
    "sweep": Parser(from_file(read_study), (swept("sweep.json"),), (RecordsError,)),
    "sweep records": Parser(
        from_file(lambda file: study_of(read_records(file.parent), ""), "sweep.jsonl"),
        (swept("sweep.jsonl"),), (RecordsError,),
    ),
    "varied": Parser(of_option(Varied()), ("NCCL_MAX_NCHANNELS=8,,16",), (click.BadParameter,)),
    "words": Parser(of_option(Words("auto", "Ring")), ("auto,ring",), (click.BadParameter,)),
    "gpus": Parser(of_option(Numbers()), ("2,4",), (click.BadParameter,)),
    "watchdog": Parser(of_variable("WATCHDOG_USEC"), ("30000000",)),
    "watchdog pid": Parser(of_variable("WATCHDOG_PID", WATCHDOG_USEC="5"), ("77",)),
    "web": Parser(lambda text: parse(text, Path("web.yml")), (WEB,), (WebConfigError,)),
}  # fmt: skip
DEEP = (PIT, '{"a":' * 5000, f"a = {PIT}", f"detail: {PIT}", f'{{"message": {PIT}', f"[0, 0, {PIT}")
ODD = (
    "", "null", "0", "[]", "{}", '"x"', "[null]", "NaN", "[1, 2, 3, 4]", '["x", "y", [], []]', LONG,
    f"a:{LONG}",
    f"{LONG}M", f"{LONG}s", "a:²", "²", "²M", "٣", f"a = {LONG}", f"a: {LONG}", f"[{LONG}, 0, [0], [{LONG}]]",
    f'[1, "", [0], [1{"0" * 400}]]', '[1, "", [{"absent": [[], 0, 0]}], null]', "\ud800", "\0", "\x85",
    "a = nan",
    "a = 1979-05-27", "? [a]\n: b", "&a [*a]", "!!python/object:os.system {}", "1e400", "-inf", "nan",
    "Thu, 99 Foo 99999 99:99:99", ", ,", "Mon, 01 Jan 0001 00:00:00 -9999", "0001-01-01",
)  # fmt: skip


def reads(parser: Parser, text: str) -> None:
    """A value, or one of the errors."""
    with suppress(*parser.errors):
        parser.read(text)


@pytest.mark.parametrize("name", PARSERS)
def test_odd_texts_are_values_or_the_one_error(name: str) -> None:
    for text in (*ODD, *DEEP):
        reads(PARSERS[name], text)


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_any_text_is_a_value_or_the_one_error(name: str, data: st.DataObject) -> None:
    parser = PARSERS[name]
    reads(parser, data.draw(damaged(*parser.good) | st.text(), "text"))
