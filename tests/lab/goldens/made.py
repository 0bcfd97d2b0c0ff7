"""The golden texts of the lab: what its commands print for the questions that are listed here, word for word.

After a change that was meant: `make generated`, and read the difference before committing it.
"""

import io
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lab.goldens.files import FILES
from tests.support import EPOCH
from wirewatch import cli

HERE = Path(__file__).parent
_COST, _PLACE, _ENV = "advise cost", "advise placement", "advise nccl-env"
_MODEL = "--model llama-3-70b"
_DGX, _NODES = "--replay demo-dgx-h200", "--nodes nodes.toml"
_EVERY_OP = "--op all_reduce --op all_gather --op reduce_scatter --op broadcast --op reduce --op alltoall --op gather --op scatter --op sendrecv"
QUESTIONS: Mapping[str, Sequence[str]] = {
    "cost": (
        f"{_COST} --machine 8xH100+8xNDR",
        f"{_COST} --machine 8xH100+8xNDR --nodes 2 {_EVERY_OP} --size 8 --size 16K --size 512K --size 8M --size 1G",
        f"{_COST} --machine 8xH100+8xNDR --nodes 4 --gpus 2,8,16,24 --op all_reduce --op all_gather --size 100MB",
        f"{_COST} --machine 4xH200 --gpus 2,3,4 {_EVERY_OP} --size 8 --size 4K --size 64K --size 256K --size 2M --size 16M --size 128M --size 4G",
        f"{_COST} --machine 8xA100+4xHDR --op all_reduce --op sendrecv --size 8 --size 16K --size 1M --size 512M",
        f"{_COST} --machine 4xL40S --gpus 2,3,4 {_EVERY_OP} --size 8 --size 64K --size 4M --size 1G",
        f"{_COST} --machine 72xGB200 --gpus 2,8,72 --op all_reduce --op alltoall --size 8 --size 1M --size 1G",
        f"{_COST} --machine 8xV100 --op all_reduce --size 1M", f"{_COST} --machine 4xT4 --op all_reduce --size 1M",
        f"{_COST} --machine 7xH100-NVL+1x100G --gpus 2,7", f"{_COST} --machine 5xB200+8xXDR --gpus 3,5 --op all_reduce --size 2M",
        f"{_COST} --machine 1xH100", f"{_COST} {_DGX}", f"{_COST} --replay h200x4-idle",
        f"{_COST} --machine 4xH100 --measured four.txt --op all_reduce --op all_gather --size 8 --size 1M --size 64M --size 8G",
        f"{_COST} --machine 4xH100 --measured four.txt --gpus 2,4 --op all_reduce --size 8 --size 64K --size 64M",
        f"{_COST} --machine 8xH100+8xNDR --nodes 2 --measured hosts.txt --gpus 16 --op all_reduce --size 16M --size 64M --size 1G",
        f"{_COST} --machine 1xH100 --nodes 4 --gpus 2,4 --op all_gather --op reduce_scatter --size 1M",
    ),
    "cost-of-models": (
        f"{_COST} --machine 8xH100+8xNDR {_MODEL} --tp 4 --tokens-per-second 30 --prompt 2048",
        f"{_COST} --machine 8xH100+8xNDR {_MODEL} --nodes 8 --tp 64", f"{_COST} --machine 8xH100+8xNDR {_MODEL} --nodes 2 --tp 12",
        f"{_COST} --machine 8xH100+8xNDR {_MODEL} --nodes 2", f"{_COST} --machine 8xH100+8xNDR {_MODEL} --nodes 32 --train",
        f"{_COST} --machine 8xH100+8xNDR {_MODEL} --size 100MB --batch 64 --context 8192",
        f"{_COST} --machine 2xA100 --model llama-3.1-405b", f"{_COST} --machine 8xA100 --model llama-3.1-405b --nodes 4 --train",
        f"{_COST} --machine 8xH100 {_MODEL} --tp 8 --dtype int4 --prompt 100", f"{_COST} --machine 8xH100 {_MODEL} --dtype fp8",
        f"{_COST} --machine 8xH100+8xNDR --model qwen3-235b-a22b --train --nodes 2", f"{_COST} --machine 8xH100 --model mixtral-8x7b --train --tokens 512",
        f"{_COST} --machine 8xH100 --parameters 70B --train", f"{_COST} --machine 8xH100 --parameters 7B --train --nodes 2 --tokens 100",
        f"{_COST} --machine 8xH100 --layers 80 --hidden 8192 --parameters 70e9 --kv-heads 8 --tp 8",
        f"{_COST} --machine 8xH100 --layers 32 --hidden 4096 --parameters 40B --experts 8 --active 2 --prompt 4096",
        f"{_COST} --machine 4xL40S --model llama-3-8b --tokens-per-second 50", f"{_COST} --machine 1xH100 --model llama-3-8b",
        f"{_COST} --machine 4xH100 --measured four.txt {_MODEL} --tp 4", f"{_COST} --machine 8xV100 --model llama-2-7b",
    ),
    "cost-explained": (
        f"{_COST} --machine 8xH100+8xNDR --nodes 2 {_MODEL} --tp 4 --prompt 2048 --train --explain",
        f"{_COST} --machine 4xL40S --model llama-3-8b --train --explain", f"{_COST} --machine 8xA100+4xHDR --op sendrecv --size 1M --explain",
    ),
    "placement": tuple(
        f"{_PLACE} {one}" for one in (
            f"{_NODES} --tp 8 --pp 2", f"{_NODES} --tp 8 --pp 2 {_MODEL}", f"{_NODES} --tp 4 --pp 2 --replicas 3 {_MODEL} --graph",
            f"{_NODES} --tp 8 --dp 2 {_MODEL} --training --dtype bfloat16", f"{_NODES} --tp 8 --pp 2 --dp 1 {_MODEL} --training --tokens 8192",
            f"{_NODES} --tp 1 {_MODEL}", f"{_NODES} --tp 6 {_MODEL}", f"{_NODES} --tp 8 --pp 9", f"{_NODES} --tp 8 --pp 100 {_MODEL}",
            f"{_NODES} --tp 64 --pp 64 --replicas 64", f"{_NODES} --tp 16 --replicas 4", f"{_NODES} --tp 8 --degraded",
            f"{_NODES} --tp 16 --tp-across any", f"{_NODES} --tp 8 --replicas 3 --tp-across node", f"{_NODES} --tp 16 --tp-across rack",
            f"{_NODES} --group tp=8,replicas=2 --group tp=16 --group tp=4", f"{_NODES} --group tp=16 --group tp=17",
            f"{_NODES} --group tp=4,replicas=3 --group tp=8,pp=2", f"{_NODES} --slurm-topology tree --tp 8 --pp 2",
            f"{_NODES} --tp 2 --parameters 70B", f"{_NODES} --tp 8 {_MODEL} --kv-tokens 100000 --headroom 0.2",
            f"{_NODES} --tp 2 --pp 2 --replicas 2 --print nodelist", f"{_NODES} --tp 2 --pp 2 --replicas 2 --print hostfile",
            f"{_NODES} --tp 2 --pp 2 --replicas 2 --print devices", f"{_NODES} --tp 2 --pp 2 --dp 2 --print devices",
            f"{_NODES} --tp 8 --print rankfile", "--nodes cores.json --tp 2 --pp 2 --replicas 2 --print rankfile", "--nodes cores.json --tp 3 --print rankfile",
            f"{_NODES} --tp 64 --print hostfile", "--nodes many.toml --tp 4 --replicas 3001", "--nodes many.toml --tp 4 --replicas 40 --all",
            "--nodes islands.json --tp 8", "--nodes islands.json --tp 5", "--nodes rack.json --tp 72", "--nodes rack.json --tp 73 --tp-across any",
            "--nodes leafs.json --tp 16 --tp-across rack", "--nodes leafs.json --tp 8 --pp 3", "--nodes leafs.json --tp 8 --replicas 2 --pp 2", "--machine 8xH100 --tp 4 --model llama-3-70b --training",
            "--machine 8xH100 --tp 8 --model llama-3-70b --training", f"{_DGX} --tp 8 {_MODEL}", "--replay h200x4-idle --tp 8 --model llama-3-70b",
            "--machine 8xL40S --tp 4", "--machine 8xH100 --tp 4 --replicas 2 --model qwen3-235b-a22b --dtype fp8", f"{_NODES} --measured four.txt --tp 4 {_MODEL}",
        )
    ),  # fmt: skip
    "nccl-env": (
        f"{_ENV} --for inference {_DGX}", f"{_ENV} --for training --machine 8xH100", f"{_ENV} --for training {_DGX} --overlay ib-port-down --nccl 2.20.5",
        f"{_ENV} --for inference --machine 8xA100+8xHDR --nccl 2.18.3", f"{_ENV} --for training --machine 8xL40S",
        f"{_ENV} --for inference --machine 8xH100 --measured sweep.json --format yaml",
        f"{_ENV} --for inference --machine 8xH100 --measured sweep.json --format env", f"{_ENV} --for inference --machine 8xH100 --measured sweep.json", f"{_ENV} --for training --machine 8xH100 --measured sweep.json",
        f"{_ENV} --for inference --machine 8xH100 --measured sweep.json --format shell",
    ),
    "nccl-env-check": tuple(
        f"{_ENV} --check --file {file} {node}"
        for file, nodes in {
            "nccl.conf": ("--nccl 2.28.9", "--nccl 2.20.5 --machine 8xH100+8xNDR", _DGX, "--machine 4xL40S"),
            "job.sh": ("--nccl 2.28.9", "--nccl 2.20.5 --machine 8xH100+8xNDR", _DGX),
            "job.yaml": ("--nccl 2.28.9", f"{_DGX} --nccl 2.22.3"), "environ": ("--machine 8xA100+8xHDR", "--replay h200x4-idle"),
            "empty.conf": ("",), "well.sh": ("",), "missing.conf": ("",),
        }.items()
        for node in nodes
    ),
    "gpu-nic": tuple(
        f"advise gpu-nic {one}" for one in (
            _DGX, f"{_DGX} --format shell", f"{_DGX} --overlay ib-port-down", 
            f"{_DGX} --overlay nic-moved", f"{_DGX} --overlay ib-device-gone", f"{_DGX} --overlay gpu-lost", 
            f"{_DGX} --overlay ib-unreadable", "--replay h200x8", "--replay h200x4-idle", "--topology topology.xml", "--machine 8xH100+8xNDR",
        )
    ),  # fmt: skip
    "parse": tuple(
        f"parse {one}" for one in (
            "four.txt", "four.txt --env NCCL_NVLS_ENABLE=0 --explain", "hosts.txt", "slow.txt --env NCCL_NVLS_ENABLE=0", "wrong.txt", "torn.txt", "cut.txt", "log.txt", "topology.xml", f"topology.xml {_DGX}",
            "graphs.xml", "document.json", "old.txt --op all_gather", "old.txt", "four.txt --topology h200x4-idle", f"four.txt {_DGX}", "empty.conf", "job.sh", "missing.txt",
            "hosts.txt --ratio 0.1", "mixed.txt", "small.txt", "mixed.txt --openmetrics", "slow.txt --openmetrics", "repeats.txt --env NCCL_NVLS_ENABLE=0",
        )
    ),  # fmt: skip
    "compare": tuple(
        f"sweep --compare {one}" for one in (
            "sweep.json sweep.json", "sweep.json slower.json", "sweep.json slower.json --fail-under 95", "slower.json sweep.json --fail-under 95", "four.txt hosts.txt", "four.txt four.txt --fail-under 90",
            "sweep.json four.txt", "four.txt missing.txt", "four.txt job.sh", "torn.txt cut.txt", "sweep.json other.json", "noisy.json noisy.json --fail-under 95",
        )
    ),  # fmt: skip
    "bench-script": tuple(
        f"advise bench-script {one}" for one in (
            "--nodes 2", "--nodes 3 --gpus-per-node 4 --launcher mpijob --image nccl:1 --op all_reduce --sizes 8:1G", "--nodes 4 --alone --pairs --partition gpu --account me --image nccl.sqsh --mpi pmi2 --time 30m --iterations 5 --warmup 0",
            "--nodes 5 --pairs --op all_gather --op alltoall --sizes 1K,1M --results out --name mine --nccl-tests /opt/t", "--nodes 1 --launcher mpijob --alone", "--nodes 2 --launcher mpijob --partition gpu", "--nodes 4 --launcher mpijob --image a/b:1 --alone --pairs",
        )
    ),  # fmt: skip
}  # fmt: skip


def made() -> Mapping[Path, str]:
    """Every golden text by its path."""
    return {HERE / f"{name}.txt": answers(name) for name in QUESTIONS}


def stray() -> tuple[Path, ...]:
    """Golden texts of what is asked no more."""
    kept = {HERE / f"{name}.txt" for name in QUESTIONS}
    return tuple(path for path in sorted(HERE.glob("*.txt")) if path not in kept)


def answers(name: str) -> str:
    """All questions of one golden text with their answers."""
    return "".join(map(answer, QUESTIONS[name]))


def answer(question: str) -> str:
    """A command with both of its outputs and its exit code, run here in a folder with the files."""
    raw = io.BytesIO()
    said = io.TextIOWrapper(raw, "utf-8", write_through=True)
    with chdir(_keep().name), redirect_stdout(said), redirect_stderr(said):
        code = cli.run(shlex.split(question))
    text = "\n".join(line.rstrip() for line in raw.getvalue().decode().splitlines())
    return f"$ wirewatch {question}\n{text}\n[ends with {code}]\n"


@cache
def _keep() -> "TemporaryDirectory[str]":
    """The folder with the files, all of the same time, which some answers have."""
    folder = TemporaryDirectory()
    for name, text in FILES.items():
        path = Path(folder.name) / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        os.utime(path, (EPOCH, EPOCH))
    return folder
