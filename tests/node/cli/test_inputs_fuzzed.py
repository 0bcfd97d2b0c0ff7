"""Inputs of the node, given any text and damaged good ones: a value, or the error that is documented."""

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.examples import examples
from tests.fuzzing import DEEP, ODD, Parser, damaged, from_file, on_bytes, reads
from tests.node.jobs.explain.drawn import evidence, job, late
from tests.node.verdict.drift.test_diff_recordings import recorded
from tests.processes import ROOT
from wirewatch import config
from wirewatch.catalogue import components
from wirewatch.cli.check.daemon import daemon_address
from wirewatch.cli.jobs.explain import cpu_seconds, selected
from wirewatch.cli.options import Duration, Size, owner
from wirewatch.cli.probe import Primitive, Switches
from wirewatch.core.hostlist import HostlistError, expanded
from wirewatch.core.ports import Answer
from wirewatch.core.probe import PRIMITIVES, Plan, decode_plan, encode_plan
from wirewatch.core.types import Absent, OperatorNote, Unusable, Why
from wirewatch.daemon.baselines import read_baseline, save_baseline
from wirewatch.daemon.notify import Notifier
from wirewatch.daemon.persistence import read_ledger
from wirewatch.documents.jobs import JOBS, ExplainedJob, JobsDocument
from wirewatch.hw.nvml.protocol import Hello, Reply, decode_hello, decode_reply, encode_hello, encode_reply
from wirewatch.hw.overlay import BUNDLED as OVERLAYS
from wirewatch.hw.overlay import OverlayError, load_overlay
from wirewatch.hw.recording import BUNDLED, RecordingError, load_recording
from wirewatch.jobs.explain.walls import decide
from wirewatch.kubernetes.apiserver import (
    EndpointError,
    UnexpectedReply,
    condition_in,
    endpoint,
    message_of,
    retry_after,
)
from wirewatch.nccl.lists import ALGO, ListError, allowed
from wirewatch.nccl.log import parse_nccl_log
from wirewatch.nccl.settings import allows_hca
from wirewatch.nccl.variables import meant, reader, variable
from wirewatch.probe.remote import detail
from wirewatch.server.webconfig import WebConfigError, parse
from wirewatch.verdict.drift.baseline import Baseline


def of_variable(name: str, **others: str) -> Callable[[str], object]:
    """The service manager's variables, one of them with this value."""
    return lambda text: Notifier.of_environment({"NOTIFY_SOCKET": "/run/n", **others, name: text})


@cache
def baseline() -> str:
    with TemporaryDirectory() as folder:
        file, said = Path(folder) / "baseline.json", OperatorNote("ada", "as delivered", 1e9)
        assert save_baseline(file, Baseline(recorded("h200x4-idle"), said, "learned"), 1e9) == ""
        return file.read_text("utf-8")


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

MANIFEST = (BUNDLED / "h200x1-idle" / "manifest.json").read_text("utf-8")

HTTP_DATES = ("120", "Sun, 22 Nov 2026 22:00:00 GMT", "Sunday, 22-Nov-26 22:00:00 GMT", "1e3")

REPLY = encode_reply(Reply((Answer(5, 3.0), Answer(Absent(Why.LOST, "gone", 15))), 0.1)).decode()


def jobs_text() -> str:
    """A daemon's answer about one running job."""
    one = evidence(job(late=late()))
    made = JobsDocument("wirewatch.jobs/1", 1e9, "live", [ExplainedJob(decide(one), one)])
    return JOBS.dump_json(made).decode()


PARSERS = {
    "address": Parser(config.address, ("127.0.0.1:9410", "[::1]:80"), (config.ConfigError,)),
    "apiserver": Parser(lambda text: endpoint(text, "", "n1", {}), ("10.0.0.1:443",), (EndpointError,)),
    "baseline": Parser(from_file(read_baseline), (baseline(),)),
    "cpu times": Parser(cpu_seconds, ("7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0",)),
    "check": Parser(from_file(lambda file: daemon_address(None, file)), (TOML,), (Unusable,)),
    "condition": Parser(on_bytes(lambda body: condition_in(body, "n1", 1e9)), (NODE,), (UnexpectedReply,)),
    "config": Parser(
        from_file(lambda file: config.load(file, components())), (TOML,), (config.ConfigError,)
    ),
    "duration": Parser(
        lambda text: Duration().convert(text, None, None), ("1.5h", "3s"), (click.BadParameter,)
    ),
    "hello": Parser(on_bytes(decode_hello), (encode_hello(Hello(3, "no")).decode(),), (ValueError,)),
    "job": Parser(
        lambda text: selected((), text), ("slurm:7", "pod:a", "4711", "pid:1"), (click.UsageError,)
    ),
    "jobs": Parser(JOBS.validate_json, (jobs_text(),), (ValidationError,)),
    "ledger": Parser(from_file(lambda file: read_ledger(file, "b", 1e9)), ('{"version": 1, "entries": []}',)),
    "manifest": Parser(from_file(recording, "manifest.json"), (MANIFEST,), (RecordingError,)),
    "message": Parser(on_bytes(message_of), ('{"message": "forbidden"}',)),
    "nccl log": Parser(parse_nccl_log, (NCCL,)),
    "nccl list": Parser(
        lambda text: allowed(ALGO, text), ("ring,tree;allgather:^nvls", "^Tree"), (ListError,)
    ),
    "nccl name": Parser(
        lambda text: (meant(text), reader(text), variable(text)), ("NCCL_BUFSIZE", "nccl-debug")
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
    "hostlist": Parser(expanded, ("gpu[001-016,020],a.b", "r[1-2]n[01-02]"), (HostlistError,)),
    "hcas": Parser(lambda text: allows_hca(text, "mlx5_0", 1), ("^=mlx5_0:1,mlx5_1", "mlx5")),
    "size": Parser(
        lambda text: Size(4).convert(text, None, None),
        ("256M", "1GiB", "4KB", "1.5G", "8 B"),
        (click.BadParameter,),
    ),
    "watchdog": Parser(of_variable("WATCHDOG_USEC"), ("30000000",)),
    "watchdog pid": Parser(of_variable("WATCHDOG_PID", WATCHDOG_USEC="5"), ("77",)),
    "web": Parser(lambda text: parse(text, Path("web.yml")), (WEB,), (WebConfigError,)),
}  # fmt: skip


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
