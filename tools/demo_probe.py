"""The probe of the demo node: times that nccl-tests measured on its eight GPUs, the rest made up to fit.

Real, from the recording of eight H200: all_reduce, all_gather and reduce_scatter in place at 64 and 256 MiB.
Made up: 512 MiB (on the line between 256 MiB and 1 GiB), latencies, host links, the peer matrix, products and
copies (the spread of healthy GPUs that was measured there), counters (just what Ring sends), NCCL's account.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import permutations
from types import MappingProxyType

from pydantic import TypeAdapter

from tests.node.hw.direct import DirectNvml
from wirewatch.busbw.formulas import RING, wire_bytes
from wirewatch.core.account import Account, Call, Comm, Connection
from wirewatch.core.hostlink import HostCopies, HostMoved, Pcie
from wirewatch.core.ports import Hardware
from wirewatch.core.probe import DOCUMENT_SCHEMA as WORKER
from wirewatch.core.probe import (
    KIB,
    OPS,
    PROBED_SCHEMA,
    Clocks,
    Copy,
    Cost,
    Document,
    LinkBytes,
    Micro,
    Moved,
    Part,
    Probed,
    ProbedGpu,
    Timed,
)
from wirewatch.core.types import Absent, Expect, Json, Why
from wirewatch.hw.overlay import Player
from wirewatch.hw.recording import Recording
from wirewatch.hw.replay import (
    ReplayCommand,
    ReplayHost,
    ReplayKmsg,
    ReplayKubelet,
    ReplayProbe,
    ReplaySlurm,
    ReplaySysfs,
)
from wirewatch.nccl.log import logged_size
from wirewatch.probe.hostpaths import HOST_BYTES
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.setup import Scene, plan_of, read_scene
from wirewatch.worker.hostlinks import COPIED

VERSION = "2.28.9"
MICROSECONDS = MappingProxyType(
    {
        "all_reduce": (365.85, 1352.96, 2643.06),
        "all_gather": (201.43, 716.87, 1379.81),
        "reduce_scatter": (200.87, 711.20, 1377.33),
    }
)
"""At 64, 256 and 512 MiB."""
FLOOR = MappingProxyType({"all_reduce": 24.6e-6, "all_gather": 19.8e-6, "reduce_scatter": 19.2e-6})
SETTINGS = {"NCCL_NVLS_ENABLE": "0"}
RUNS = 153
"""Of a latency size: three graphs of 50, and the rest."""
LINKS = 18


class _Still:
    def now(self) -> float:
        return 1_794_360_000.0

    def mono(self) -> float:
        return 0.0


def probed(recording: Recording) -> Json:
    """The recorded answer of the probe port."""
    adapter = TypeAdapter(Probed)
    answer: Json = adapter.dump_python(_probed(_scene(recording)), mode="json")
    return answer


def _scene(recording: Recording) -> Scene:
    player, clock = Player(recording, lambda: 0.0), _Still()
    hardware = Hardware(
        DirectNvml(player), ReplaySysfs(player), ReplayHost(player, clock.now()), ReplayKmsg(player),
        ReplayCommand(player), ReplayKubelet(player), ReplaySlurm(player), clock, ReplayProbe(player, clock),
    )  # fmt: skip
    gpus = hardware.nvml.gpus()
    assert not isinstance(gpus, Absent)
    scene = read_scene(hardware, gpus, SETTINGS, Expect(), {})
    assert not isinstance(scene, Absent)
    return scene


def _probed(scene: Scene) -> Probed:
    draw = random.Random(1)  # noqa: S311 - the same demo each time
    plan = plan_of(ProbeOptions(), "nccl", scene)
    ranks = len(scene.gpus)
    collectives = tuple(_timed(draw, plan.latency_sizes))
    sent = {op: sum(_sent(t, ranks) for t in collectives if t.op == op) for op in OPS}
    sent["copies"] = (ranks - 1) * 3 * plan.copy_bytes
    return Probed(
        schema=PROBED_SCHEMA, at=_Still().now(), by="recording", forced=False, outcome="ok", why="",
        plan=plan,
        gpus=tuple(ProbedGpu(g.index, g.uuid, 644_939_776, 2_642_411_520, 644_939_776) for g in scene.gpus),
        conditions=scene.conditions, settings=SETTINGS, seconds=4.1, held_seconds=3.6,
        document=Document(
            schema=WORKER, engine="nccl", versions={"nccl": VERSION, "cuda_driver": "13.0"},
            collectives=collectives, copies=tuple(_copies(draw, ranks, plan.copy_bytes)),
            micros=tuple(_micros(draw, ranks, plan.copy_bytes)), hosts=tuple(_hosts(draw, ranks)),
            cost=Cost(0.5, 1.2, 3.2, 3.9, tuple(0.108 for _ in range(ranks)), 6.4, 1_900_000_000),
        ),
        account=_account(ranks, plan.latency_sizes), parts=tuple(_parts(sent, ranks)),
        links=tuple(_links(sum(sent.values()), gpu) for gpu in range(ranks)),
        clocks=tuple(Clocks(gpu, 1.98e9, 3.201e9, 0) for gpu in range(ranks)),
        ports={f"{nic}:1": 0 for nic in ("mlx5_0", "mlx5_1")}, paths=scene.paths,
        hosts=tuple(
            HostMoved(gpu, COPIED * HOST_BYTES, COPIED * HOST_BYTES, Pcie(5, 16)) for gpu in range(ranks)
        ),
    )  # fmt: skip


def _timed(draw: random.Random, small: Sequence[int]) -> Iterator[Timed]:
    for op in OPS:
        for size in small:
            seconds = FLOOR[op] * (1 + size / (256 * KIB)) * draw.uniform(0.99, 1.01)
            yield Timed(0, op, size, "graph", 100, RUNS, seconds, seconds * 0.99, seconds, seconds * 1.01, 0)
        for (size, runs), micro in zip(ProbeOptions().bandwidth, MICROSECONDS[op], strict=True):
            low, high = micro * draw.uniform(0.985, 0.995), micro * draw.uniform(1.005, 1.02)
            yield Timed(
                0, op, size, "stream", runs, runs + 3, micro * 1e-6, low * 1e-6, micro * 1e-6, high * 1e-6, 0
            )


def _sent(timed: Timed, ranks: int) -> int:
    if timed.launch == "graph":
        return 2 * timed.size_bytes * timed.runs
    sent = wire_bytes(timed.op, RING, ranks, timed.size_bytes)
    assert not isinstance(sent, Absent)
    return round(sent.bytes * timed.runs)


def _copies(draw: random.Random, ranks: int, size: int) -> Iterator[Copy]:
    for source, destination in permutations(range(ranks), 2):
        yield Copy(source, destination, size, size / draw.uniform(375e9, 386e9), 3, direct=True)


def _micros(draw: random.Random, ranks: int, size: int) -> Iterator[Micro]:
    for gpu in range(ranks):
        product = 904e-6 * draw.uniform(0.985, 1.02)
        copy = 2 * size / draw.uniform(4130e9, 4190e9)
        yield Micro(
            gpu,
            product,
            product * 0.997,
            product * 1.004,
            size,
            copy,
            copy * 0.99,
            copy * 1.02,
            product,
            copy,
        )


def _hosts(draw: random.Random, ranks: int) -> Iterator[HostCopies]:
    """What H100 reach in NVIDIA's own listings of nvbandwidth; each GPU has a root port of its own."""
    for gpu in range(ranks):
        to, back = (HOST_BYTES / (rate * draw.uniform(0.997, 1.003)) for rate in (55.5e9, 54.9e9))
        yield HostCopies(
            gpu=gpu, size_bytes=HOST_BYTES, to_device=to, to_device_low=to * 0.995, from_device=back,
            from_device_low=back * 0.995, both=1.12 * back, all_to_device=1.01 * to,
            all_from_device=1.02 * back, runs=COPIED, near=True,
        )  # fmt: skip


def _account(ranks: int, small: Sequence[int]) -> Account:
    not_given = Absent(Why.MISSING, "NCCL's log does not tell it")
    ring = [(rank, (rank + way) % ranks) for way in (1, -1) for rank in range(ranks)]
    comm = Comm(
        id="0x1", ranks=ranks, devices={}, finished=tuple(range(ranks)), init_seconds=2.0, nodes=1,
        channels=not_given, connections=tuple(Connection(a, b, "P2P/direct pointer", 24) for a, b in ring),
        nvls=(),
    )  # fmt: skip
    sizes = [(size, "ll") for size in small] + [(s, "simple") for s, _ in ProbeOptions().bandwidth]
    calls = tuple(
        Call(op, logged_size(op, size, ranks, VERSION), "ring", protocol, (0, 23), 1)
        for op in OPS
        for size, protocol in sizes
    )
    return Account(VERSION, (comm,), calls, tuple(SETTINGS.items()), (), (), 0, "IB")


def _parts(sent: dict[str, int], ranks: int) -> Iterator[Part]:
    names = {op: f"{op}.0" for op in OPS}
    for part, amount in {**sent, "micros": 0, "hosts": 0}.items():
        errors = dict.fromkeys(("replay", "recovery", "crc"), 0)
        moved = tuple(Moved(gpu, amount, amount, errors) for gpu in range(ranks))
        yield Part(names.get(part, part), 0.05, moved)


def _links(total: int, gpu: int) -> LinkBytes:
    each = (total // LINKS,) * LINKS
    return LinkBytes(gpu, tuple(range(LINKS)), each, each)
