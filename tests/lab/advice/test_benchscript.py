"""Scripts that run nccl-tests: their words, quoting and exit codes, and manifests by their fields."""

import json
import shlex
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.examples import examples
from tests.lab.advice.benchscripts import run, script
from tests.lab.advice.mpijob import ConfigMap, MpiJob
from tests.node.cli.schemas import complaints
from tests.processes import run_wirewatch
from tests.rows import each
from wirewatch_lab.advice.shell import quoted
from wirewatch_lab.cli.advise.bench_script import (
    BENCH_SCRIPT,
    MIB,
    SOURCE_SIZES,
    SWEEP,
    BenchScriptError,
    document,
    render,
    sbatch_word,
    to_ranges,
)

EVIL = "a b'c\"d\\e$(touch evil)`touch evil`;touch evil|&<>#é {{ 1 }} {% x %} {## hetjob $$(HOME) -x *"
PRINTABLE = st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" "), min_size=1, max_size=40)
FOLDER = PRINTABLE.filter(
    lambda text: "/" not in text and text not in {".", ".."} and len(text.encode()) < 200
)


def test_the_sizes_of_the_source_and_a_whole_sweep() -> None:
    assert to_ranges(SOURCE_SIZES) == ((104857, 104857, 2), (MIB, 256 * MIB, 4))
    assert to_ranges(SWEEP) == ((8, 8 << 30, 2),)
    assert to_ranges((1, 3, 5)) == ((1, 3, 3), (5, 5, 2))
    assert to_ranges((8, 16, 24)) == ((8, 16, 2), (24, 24, 2))


@settings(max_examples=examples(60))
@given(sizes=st.lists(st.integers(1, 1 << 35), min_size=1, max_size=12))
def test_ranges_hold_just_the_sizes(sizes: list[int]) -> None:
    found = []
    for first, last, factor in to_ranges(sizes):
        size = first
        while size <= last:
            found.append(size)
            size *= factor
    assert found == sorted(set(sizes))


def test_no_setting_is_forced_and_the_log_is_not_in_the_table() -> None:
    for text in (render(script()), render(script(launcher="mpijob", image="x"))):
        exported = [line.strip() for line in text.splitlines() if line.strip().startswith("export ")]
        names = {line.split()[1].partition("=")[0] for line in exported}
        assert names == {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}


def test_each_operation_runs_over_all_nodes(tmp_path: Path) -> None:
    code, words = run(render(script(ops=("all_reduce", "alltoall"))), tmp_path)
    assert code == 0
    assert words == [
        word
        for op in ("all_reduce", "alltoall")
        for word in (
            "--mpi=pmix", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--nodelist=node1,node2",
            "--cpu-bind=none", f"/opt/nccl-tests/build/{op}_perf", "-b", "8", "-e", "8", "-f", "2",
            "-g", "1", "-n", "20", "-w", "5", "-c", "1",
        )
    ]  # fmt: skip
    assert sorted(file.name for file in (tmp_path / "results" / "7.0").iterdir()) == [
        "all.all_reduce.txt", "all.alltoall.txt",
    ]  # fmt: skip


def test_nodes_alone_and_in_pairs_come_first(tmp_path: Path) -> None:
    code, words = run(render(script(alone=True, pairs=True)), tmp_path)
    lists = [word.partition("=")[2] for word in words if word.startswith("--nodelist=")]
    assert (code, sorted(lists[:2]), lists[2:]) == (0, ["node1", "node2"], ["node1,node2", "node1,node2"])
    names = {file.name for file in (tmp_path / "results" / "7.0").iterdir()}
    assert {"alone.node1.all_reduce.txt", "pair.node1.node2.all_reduce.txt"} < names


@pytest.mark.parametrize("kind", [{}, {"alone": True}, {"pairs": True}])
def test_what_fails_is_the_exit_code_and_ends_nothing(tmp_path: Path, kind: dict[str, bool]) -> None:
    code, words = run(render(script(ops=("all_reduce", "reduce"), **kind)), tmp_path, SRUN_CODE="9")
    assert code == 9
    assert sum(word.endswith("reduce_perf") for word in words) >= 2


def test_a_start_after_a_failed_prolog_keeps_what_was_there(tmp_path: Path) -> None:
    for start in ("0", "1"):
        run(render(script()), tmp_path, SLURM_RESTART_COUNT=start)
    assert sorted(one.name for one in (tmp_path / "results").iterdir()) == ["7.0", "7.1"]


@settings(max_examples=examples(40), deadline=None)
@given(tests=PRINTABLE, image=PRINTABLE, mpi=PRINTABLE, results=FOLDER)
@example(EVIL.replace("/", ""), EVIL, EVIL, EVIL.replace("/", ""))
def test_any_text_is_one_word_of_the_script(tests: str, image: str, mpi: str, results: str) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        code, words = run(
            render(script(tests=tests, image=image, mpi=mpi, results=results)), folder,
        )  # fmt: skip
        made = folder / results / "7.0"
        assert code == 0
        assert words[0] == f"--mpi={mpi}"
        assert words[6:9] == [
            f"--container-image={image}", f"--container-mounts={made.resolve()}:{made.resolve()}",
            f"{tests}/all_reduce_perf",
        ]  # fmt: skip
        assert made.is_dir()
        assert not (folder / "evil").exists()


@settings(max_examples=examples(60))
@given(text=PRINTABLE)
@example(EVIL)
def test_any_text_is_one_word_of_its_line(text: str) -> None:
    lines = render(script(partition=text, account=text, name=text)).splitlines()
    directives = [shlex.split(line)[1:] for line in lines if line.startswith("#SBATCH ")]
    for name in ("partition", "account", "job-name"):
        assert [f"--{name}={text}"] in directives
    assert shlex.split(quoted(text)) == [text]
    assert all("\n" not in word for word in (sbatch_word(text), quoted(text)))


@settings(max_examples=examples(60))
@given(tests=PRINTABLE, image=PRINTABLE)
@example(EVIL, EVIL)
def test_any_text_is_one_value_of_the_manifest(tests: str, image: str) -> None:
    text = render(script(launcher="mpijob", image=image, tests=tests))
    config, job = list(yaml.safe_load_all(text))
    pods = MpiJob.model_validate(job).spec.mpiReplicaSpecs
    for one in (pods.Launcher, pods.Worker):
        assert one.template.spec["containers"][0]["image"] == image
    inside = ConfigMap.model_validate(config).data["run.sh"]
    assert shlex.split(next(line for line in inside.splitlines() if line.startswith("tests="))) == [
        f"tests={tests}"
    ]


@settings(max_examples=examples(60))
@given(
    text=st.text(max_size=20),
    field=st.sampled_from(("tests", "image", "mpi", "results", "name", "partition")),
)
@example("a\nb", "partition")
@example("a\0b", "tests")
@example("\ud800", "image")
def test_other_text_is_refused(text: str, field: str) -> None:
    wanted = script(**{field: text})
    if text.isprintable():
        assert render(wanted).startswith("#!/bin/bash\n")
        return
    with pytest.raises(BenchScriptError) as refused:
        render(wanted)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("launcher", ["slurm", "mpijob"])
def test_what_is_written_is_a_script_to_bash(launcher: str) -> None:
    text = render(script(launcher=launcher, image="x", alone=True, pairs=True))
    body = text if launcher == "slurm" else next(yaml.safe_load_all(text))["data"]["run.sh"]
    done = subprocess.run(["/bin/bash", "-n"], input=body, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_manifest_has_a_launcher_and_the_workers() -> None:
    _, job = list(yaml.safe_load_all(render(script(launcher="mpijob", image="x", nodes=3))))
    spec = MpiJob.model_validate(job).spec
    assert (spec.slotsPerWorker, spec.mpiReplicaSpecs.Worker.replicas) == (2, 3)
    limits = spec.mpiReplicaSpecs.Worker.template.spec["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": 2}
    job["spec"]["slotsPerWorkers"] = 2
    with pytest.raises(ValidationError):
        MpiJob.model_validate(job)


@each("name", ["A", "a_b", "-a", "a-", "a" * 60, ""])
def test_a_name_that_kubernetes_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(BenchScriptError, match="Kubernetes"):
        render(script(launcher="mpijob", image="x", name=name))


@pytest.mark.parametrize("launcher", ["slurm", "mpijob"])
def test_its_document_is_as_its_schema_has_it(launcher: str) -> None:
    made = document(1.8e9, script(launcher=launcher, image="x"))
    text = BENCH_SCRIPT.dump_json(made).decode()
    assert complaints("wirewatch.advise-bench-script.1", text) == []


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    file = tmp_path / "bench.sh"
    done = run_wirewatch("advise", "bench-script", "--nodes", "4", "--out", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"{file}: written; start it with sbatch {file}\n"
    printed = run_wirewatch("advise", "bench-script", "--nodes", "4")
    assert printed.stdout == file.read_text("utf-8")
    told = json.loads(run_wirewatch("advise", "bench-script", "--nodes", "4", "--json").stdout)
    assert told["script"] == printed.stdout


@pytest.mark.parametrize(
    "words",
    [
        (), ("--nodes", "0"), ("--nodes", "2", "--time", "9" * 300),
        ("--nodes", "2", "--sizes", "x"), ("--nodes", "2", "--partition", "a\nb"),
        ("--nodes", "2", "--launcher", "mpijob", "--partition", "p"), ("--nodes", "2", "--out", "/no/such/a"),
        ("--nodes", "2", "--launcher", "mpijob", "--name", "A B"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line(words: tuple[str, ...]) -> None:
    done = run_wirewatch("advise", "bench-script", *words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (64, "", 1)


def test_pairs_take_two_nodes_and_collectives_two_gpus() -> None:
    with pytest.raises(BenchScriptError, match="pairs take two nodes or more"):
        render(script(nodes=1, pairs=True))
    with pytest.raises(BenchScriptError, match="collectives take two GPUs or more"):
        render(script(nodes=1, gpus=1))
    assert "# nccl-tests over 1 node of 2 GPUs, read by" in render(script(nodes=1))
    assert "# nccl-tests over 2 nodes of 1 GPU, read by" in render(script(gpus=1))
