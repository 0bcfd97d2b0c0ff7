"""Inputs of the lab, given any text and damaged good ones: a value, or the error that is documented."""

import io
import json
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuzzing import DEEP, ODD, Parser, damaged, from_file, of_option, on_bytes, reads
from tests.lab.advice.nearby import gpus
from tests.lab.study.flights import waits, world
from tests.lab.study.printed import Job, lines
from tests.lab.study.sweeps import CURVES, Node, header
from tests.lab.study.test_nccljson import FORMS
from tests.lab.study.topologies import gpu, nic, switch, system
from wirewatch.core.topology import NicPart, NicPath, Topology
from wirewatch.core.types import Absent
from wirewatch.documents.state import TOPOLOGY as TOPOLOGIES
from wirewatch.documents.state import TopologyDocument
from wirewatch_lab.advice.described import DescriptionError, described
from wirewatch_lab.advice.gpunic.mapping import map_nics
from wirewatch_lab.advice.gpunic.settings import cpu_bindings, job_settings
from wirewatch_lab.advice.placement.cluster import ClusterError, NodePool, read_cluster, with_slurm_topology
from wirewatch_lab.cli.advise.amounts import Count
from wirewatch_lab.cli.advise.gpu_nic import wrapper
from wirewatch_lab.cli.advise.machines import ChosenMachine
from wirewatch_lab.cli.advise.nccl_env import known_version, of_named_file
from wirewatch_lab.cli.advise.placement import GroupSizes
from wirewatch_lab.cli.grids import Numbers, Sizes, Varied, Words
from wirewatch_lab.cli.parse import settings as nccl_settings
from wirewatch_lab.study.basis import RunGrounds
from wirewatch_lab.study.export import export, read_study
from wirewatch_lab.study.flightdumps import DumpError, read_dump
from wirewatch_lab.study.flightjudge import FlightJudge
from wirewatch_lab.study.judge import judge
from wirewatch_lab.study.nccljson import mixed_lines
from wirewatch_lab.study.nccllog import read_log
from wirewatch_lab.study.nccltests import Reader
from wirewatch_lab.study.records import RecordsError, read_records, study_of
from wirewatch_lab.study.topologyxml import read_topology


def judged(body: bytes) -> object:
    """All runs in an output of nccl-tests."""
    reader = Reader()
    lines = list(mixed_lines(BytesIO(body), reader))
    return lines, [judge(run, RunGrounds({}).basis) for run in reader.runs]


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

NCCL = (
    "node:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"
    "node:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    "node:7:9 [1] NCCL INFO NCCL_ALGO set by environment to Ring.\n"
    "node:7:9 [0] NCCL INFO comm 0x55 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n"
    "node:7:9 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}\n"
)

SYSTEM = system([switch("0000:10:00.0", gpu("0000:1b:00.0"), nic("0000:18:00.0", "mlx5_0"))]).decode()

FLIGHT = json.dumps(waits(world(), [0], seq=4).dump(0))

TOPOLOGY = TOPOLOGIES.dump_json(
    TopologyDocument(
        "wirewatch.topology/1", 1e9,
        Topology(
            gpus(1), (NicPart("0x1", "mlx5_0", "MT4129", "28", gpus(1)[0].place, (("1", "InfiniBand"),)),),
            (), (NicPath("GPU-0", "mlx5_0", "PIX"),), 1, (),
        ),
    )
).decode()  # fmt: skip


@cache
def swept(name: str) -> str:
    """A file of a sweep that is complete."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "sweep"
        Node(place).sweep(header(CURVES[:1]))
        export(read_records(place), place)
        return (place / name).read_text("utf-8")


def mapped(file: Path) -> object:
    """The RDMA ports of the GPUs in a topology file, and a script for its ranks."""
    machine = ChosenMachine(str(file), None, (), None, (), None).read()
    assert not isinstance(machine.locality, Absent)
    found = map_nics(machine.locality)
    if isinstance(found, Absent):
        return found
    return wrapper(found, job_settings(found), cpu_bindings(found, machine.locality))


PARSERS = {
    "amount": Parser(of_option(Count()), ("70B", "1.5e9"), (click.BadParameter,)),
    "cluster": Parser(from_file(read_cluster), (CLUSTER, CLUSTER_JSON), (ClusterError,)),
    "described machine": Parser(described, ("8xH100+8xNDR", "4 x l40s"), (DescriptionError,)),
    "flight recorder dump": Parser(
        on_bytes(lambda body: FlightJudge([read_dump(body, 0, "", "dump")]).document(())),
        (FLIGHT,), (DumpError,),
    ),
    "nccl summary": Parser(lambda text: read_log(text.split("\n")).lines(), (NCCL,)),
    "mapped topology": Parser(from_file(mapped), (SYSTEM, TOPOLOGY), (click.UsageError,)),
    "nccl topology": Parser(on_bytes(lambda body: read_topology(io.BytesIO(body))), (SYSTEM,)),
    "nccl-tests": Parser(on_bytes(judged), ("\n".join(lines(Job())), FORMS["sorted"])),
    "nccl environment": Parser(
        from_file(of_named_file),
        ("NCCL_A=1\n# x\nNCCL_B = 1\n", "export NCCL_A='1' NCCL_B=2 # x\nunset NCCL_A\n", "NCCL_A=1\0B=2\0"),
        (click.UsageError,),
    ),
    "nccl version": Parser(
        lambda text: known_version(None, None, text), ("2.28.9", "v2.21"), (click.UsageError,)  # type: ignore[arg-type]
    ),
    "nccl setting": Parser(
        lambda text: nccl_settings(None, None, [text]), ("NCCL_ALGO=Ring",), (click.UsageError,)  # type: ignore[arg-type]
    ),
    "groups": Parser(of_option(GroupSizes()), ("tp=4,pp=2,replicas=3", "tp=8"), (click.BadParameter,)),
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
