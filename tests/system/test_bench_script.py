"""Scripts of `advise bench-script` on a real Slurm, by shellcheck, and their pods by Kubernetes' schemas."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.lab.advice.benchscripts import nccl_tests, program, script
from tests.lab.advice.test_benchscript import EVIL
from tests.processes import run_wirewatch
from tests.system.cluster import PATH, Cluster, tool
from wirewatch.core.probe import OPS
from wirewatch_lab.cli.advise.bench_script import MIB, render

pytestmark = pytest.mark.system

RANGES = ((104857, 104857, 2), (MIB, 4 * MIB, 4))
KUBERNETES = ("1.27", "1.34")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        nccl_tests(folder / "nccl tests")
        start = f'#!/bin/sh\nexec {sys.executable} -m wirewatch "$@"\n'
        program(folder / "bin" / "wirewatch", start)
        with Cluster(folder, {"node1": 2, "node2": 2}) as made:
            yield made
        made.wait(lambda: not made.processes())


def submit(cluster: Cluster, text: str, *options: str, **environment: str) -> str:
    """What sbatch says of a script."""
    file = cluster.folder / "bench.sh"
    file.write_text(text, "utf-8")
    environment = {"PATH": f"{cluster.folder}/bin:{PATH}", "SLURM_CONF": str(cluster.conf), **environment}
    done = subprocess.run(
        [tool("sbatch"), *options, str(file)], cwd=cluster.folder, env={**environment, "HOME": "/root"},
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def bench(cluster: Cluster, **changes: object) -> str:
    tests = str(cluster.folder / "nccl tests")
    given = {"ops": OPS, "ranges": RANGES, "tests": tests, "mpi": "none", "seconds": 300, **changes}
    return render(script(**given))


def test_slurm_would_run_it_with_any_text(cluster: Cluster) -> None:
    told = submit(cluster, bench(cluster, name=EVIL, account=EVIL, partition="all"), "--test-only")
    assert "using 16 processors on nodes node[1-2] in partition all" in told
    submit(cluster, bench(cluster, name=EVIL), "--hold")
    assert cluster.tell("squeue", "-h", "-o", "%j") == f"{EVIL}\n"
    cluster.cancel()


def test_a_job_over_two_nodes_ends_in_judged_tables(cluster: Cluster) -> None:
    ops = ("all_reduce",)
    job = submit(cluster, bench(cluster, ops=ops, alone=True, results="my results"), "--parsable").strip()
    told = finished(cluster, job)
    assert "JobState=COMPLETED" in told, printed(cluster, job)
    made = cluster.folder / "my results" / f"{job}.0"
    names = ("alone.node1", "alone.node2", "all")
    assert {file.name for file in made.glob("*.txt")} == {f"{name}.{op}.txt" for name in names for op in ops}
    document = json.loads((made / "all.all_reduce.json").read_text("utf-8"))
    assert document["schema"] == "wirewatch.parse/1"
    sizes = [row["size_bytes"] for run in document["runs"] for row in run["rows"]]
    assert sizes == [104856, MIB, 4 * MIB]
    assert "wirewatch_" in (made / "all.all_reduce.prom").read_text("utf-8")
    assert len(list(made.glob("nccl.node*.log"))) > 0
    assert "NCCL INFO" not in (made / "all.all_reduce.txt").read_text("utf-8")


def test_the_exit_code_of_a_failed_operation_is_that_of_the_job(cluster: Cluster) -> None:
    job = submit(cluster, bench(cluster), "--parsable", FAILING="all_gather", PATH=PATH).strip()
    told = finished(cluster, job)
    assert "ExitCode=3:0" in told, printed(cluster, job)
    made = cluster.folder / "results" / f"{job}.0"
    assert "Avg bus bandwidth" in (made / "all.reduce_scatter.txt").read_text("utf-8")
    assert f"wirewatch is not here: take {made}" in printed(cluster, job)


@pytest.mark.parametrize("launcher", ["slurm", "mpijob"])
def test_shellcheck_finds_nothing(launcher: str) -> None:
    text = render(
        script(launcher=launcher, image="an image", tests='/opt/it\'s "here"', alone=True, pairs=True)
    )
    body = text if launcher == "slurm" else "#!/bin/bash\n" + next(yaml.safe_load_all(text))["data"]["run.sh"]
    checked(body)


@pytest.mark.parametrize("overlays", [(), ("--overlay", "ib-port-down")])
def test_shellcheck_finds_nothing_in_the_script_of_a_rank(overlays: tuple[str, ...]) -> None:
    done = run_wirewatch("advise", "gpu-nic", "--replay", "demo-dgx-h200", *overlays, "--format", "shell")
    checked(done.stdout)


def checked(body: str) -> None:
    done = subprocess.run(
        [tool("shellcheck"), "-"], input=body, text=True, capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("version", KUBERNETES)
def test_its_pods_and_its_configmap_are_as_kubernetes_has_them(version: str) -> None:
    config, job = list(yaml.safe_load_all(render(script(launcher="mpijob", image="an image"))))
    assert config["kind"] == "ConfigMap"
    kubernetes_validate.validate(config, version, strict=True)  # raises where a key is wrong
    assert len(job["spec"]["mpiReplicaSpecs"]) == 2
    for name, replica in job["spec"]["mpiReplicaSpecs"].items():
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name.lower()},
            "spec": replica["template"]["spec"],
        }  # fmt: skip
        kubernetes_validate.validate(pod, version, strict=True)


def test_srun_takes_the_binding_of_gpus_and_processors(cluster: Cluster) -> None:
    told = cluster.tell(
        "srun", "-N1", "--ntasks-per-node=2", "--gpus-per-node=2", "--gpu-bind=map_gpu:0,1",
        "--cpu-bind=mask_cpu:0xf,0xf0", "sh", "-c", "echo $SLURM_LOCALID $CUDA_VISIBLE_DEVICES",
    )  # fmt: skip
    assert sorted(told.splitlines()) == ["0 0", "1 1"]


def finished(cluster: Cluster, job: str) -> str:
    """What Slurm says of a job once it has ended."""
    going = ("JobState=PENDING", "JobState=RUNNING", "JobState=COMPLETING", "JobState=CONFIGURING")

    def told() -> str:
        return cluster.tell("scontrol", "show", "job", job)

    cluster.wait(lambda: bool(told()) and not any(state in told() for state in going), 120)
    return told()


def printed(cluster: Cluster, job: str) -> str:
    return (cluster.folder / f"slurm-{job}.out").read_text("utf-8")[-3000:]
