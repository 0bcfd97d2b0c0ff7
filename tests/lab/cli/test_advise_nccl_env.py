"""`wirewatch advise nccl-env` as a process: advice in all forms, and the check of what a job has."""

import json
import os
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.lab.advice.settings import MIB, swept
from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import USAGE, refused
from tests.processes import run_wirewatch
from tests.rows import each
from wirewatch.busbw.references import Confidence
from wirewatch.cli import cli
from wirewatch.core.types import Absent, Health, Why
from wirewatch.core.words import printable
from wirewatch.statefolder import filesystem_ids
from wirewatch_lab.advice.described import described
from wirewatch_lab.advice.settings.advice import NcclEnvDocument, advise, check
from wirewatch_lab.advice.settings.candidates import VariableAdvice
from wirewatch_lab.advice.settings.measured import JobPurpose
from wirewatch_lab.advice.settings.node import NcclNode, described_node
from wirewatch_lab.cli.advise import nccl_env as module
from wirewatch_lab.cli.advise.nccl_env import LIMIT, first_advice, job_text, of_named_file
from wirewatch_lab.study.curve import Configuration, Study
from wirewatch_lab.study.export import SWEEP, SweepCurve, SweepDocument, SweepPoint

DGX = ("--replay", "demo-dgx-h200")
NOBODY = 65534
DESCRIBED = ("--machine", "8xH100")
HCAS = "=" + ",".join(f"mlx5_{n}" for n in range(8))


def as_document(study: Study) -> bytes:
    """A sweep.json that holds a study."""
    curves = [
        SweepCurve(
            one.op, one.configuration.ranks, one.configuration.algorithm, one.configuration.protocol, "eager",
            False, dict(one.configuration.settings), one.dtype, one.in_place,  # noqa: FBT003
            [SweepPoint(p.size_bytes, list(p.seconds), [0.0] * len(p.seconds), 0, []) for p in one.points],
        )
        for one in study.curves
    ]  # fmt: skip
    document = SweepDocument(
        "wirewatch.sweep/1", study.at, "0.2", 1, 5, True, study.environment, [], [], curves  # noqa: FBT003
    )  # fmt: skip
    return SWEEP.dump_json(document)


def written(study: Study, path: Path) -> None:
    path.write_bytes(as_document(study))


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_people_get_a_table_and_each_reason() -> None:
    done = run_wirewatch("advise", "nccl-env", "--for", "inference", *DGX, "--explain")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"NCCL_IB_HCA={HCAS}" in done.stdout
    assert "mlx5_8:1 (Ethernet, 200 Gb/s = 25 GB/s)" in done.stdout
    assert "NCCL_ALGO: leave unset\n    why: " in done.stdout
    assert done.stdout.count("    when not: ") == done.stdout.count("    source: ") > 20


@each(
    ("network", "first", "lines"),
    [
        ("+p5", "Set nothing: NCCL's own choices hold for training on 8 NVIDIA H100 80GB HBM3 on p5", 1),
        ("+8xNDR", "Set nothing: ", 1),
        ("+a3-mega", "Set nothing by hand for training on 8 ", 2),
        ("", "Set nothing inside a node for training on 8 ", 2),
    ],
)
def test_where_nothing_is_needed_a_line_says_so(network: str, first: str, lines: int) -> None:
    node = described_node(described(f"8xH100{network}"), None)
    text = first_advice(advise(node, (), JobPurpose.TRAINING, 0.0))
    assert (text.startswith(first), len(text.splitlines())) == (True, lines)


def test_a_script_for_a_job_says_where_the_settings_of_its_network_are() -> None:
    node = described_node(described("8xH100+a3-mega"), None)
    text = job_text(advise(node, (), JobPurpose.TRAINING, 0.0), "shell")
    assert "nccl-env-profile.sh" in " ".join(line for line in text.splitlines() if line.startswith("# "))
    assert [line for line in text.splitlines() if not line.startswith("#")] == ["export NCCL_DEBUG=WARN"]


def test_a_first_answer_has_what_is_set_and_what_was_measured() -> None:
    done = run_wirewatch("advise", "nccl-env", "--for", "inference", *DGX)
    assert f"\n  NCCL_IB_HCA={HCAS}\n      NCCL opens every active port; " in done.stdout
    written(swept((Configuration(4, "Tree"), {0: -0.2, 64 * MIB: 0.4})), Path("sweep.json"))
    done = run_wirewatch("advise", "nccl-env", "--for", "inference", *DESCRIBED, "--measured", "sweep.json")
    assert "\n  NCCL_ALGO=allreduce:Tree\n      measured here 24.9% faster" in done.stdout
    assert "\n  measured here: NCCL_ALGO allreduce:Tree +" in done.stdout


def test_a_check_has_15_lines_at_most_and_says_how_many_it_left_out() -> None:
    names = [f"NCCL_NO_SUCH_THING_{n}" for n in range(40)]
    Path("conf").write_text("".join(f"{name}=1\n" for name in names), "utf-8")
    done = run_wirewatch("advise", "nccl-env", "--check", "--file", "conf", *DGX)
    lines = done.stdout.splitlines()
    shown = sum(line.startswith("DOES NOT EXIST: ") for line in lines)
    assert (len(lines) <= 15, shown > 1) == (True, True)
    assert f"{40 - shown} more, and the sources: --explain" in lines
    explained = run_wirewatch("advise", "nccl-env", "--check", "--file", "conf", *DGX, "--explain").stdout
    assert explained.count("DOES NOT EXIST: ") == 40


def test_the_network_is_named_where_the_machine_does_not_show_it() -> None:
    Path("conf").write_text("NCCL_PROTO=Simple\n", "utf-8")
    words = ("advise", "nccl-env", "--check", "--file", "conf", *DESCRIBED)
    assert [run_wirewatch(*words).returncode, run_wirewatch(*words, "--network", "p5").returncode] == [3, 0]
    assert run_wirewatch(*words, "--network", "8xNDR").returncode == 1


@settings(max_examples=examples(80))
@example("a b", "'\"$(x)`y`\\ #")
@given(st.text(), st.text())
def test_jobs_get_values_that_are_quoted_and_nothing_else(one: str, other: str) -> None:
    variables = [
        VariableAdvice(name, value, "", Confidence.LOW, "", "")
        for name, value in (("NCCL_A", one), ("NCCL_B", other), ("NCCL_C", None))
    ]
    made = NcclEnvDocument(
        "wirewatch.advise-nccl-env/1", 0.0, "a\nnode", "training", None, tuple(variables), None, ""
    )
    wanted = {"NCCL_A": printable(one), "NCCL_B": printable(other)}
    words = shlex.split(job_text(made, "shell"), comments=True)
    assert dict(word.split("=", 1) for word in words if word != "export") == wanted
    lines = [line for line in job_text(made, "env").split("\n") if line and not line.startswith("#")]
    assert dict(line.split("=", 1) for line in lines) == wanted
    assert {pair["name"]: pair["value"] for pair in yaml.safe_load(job_text(made, "yaml"))["env"]} == wanted


def test_a_sweep_speaks_for_its_setting_with_its_figures() -> None:
    written(swept((Configuration(4, "Tree"), {0: -0.2, 64 * MIB: 0.4})), Path("sweep.json"))
    done = run_wirewatch(
        "advise", "nccl-env", "--for", "inference", *DESCRIBED, "--measured", "sweep.json", "--json"
    )
    assert complaints("wirewatch.advise-nccl-env.1", done.stdout) == []
    (first,) = [one for one in json.loads(done.stdout)["variables"] if one["name"] == "NCCL_ALGO"]
    assert (first["value"], first["confidence"]) == ("allreduce:Tree", "measured")
    assert [one["verdict"] for one in first["measured"]] == ["faster", "faster", "slower"]
    text = run_wirewatch(
        "advise", "nccl-env", "--for", "training", *DESCRIBED, "--measured", "sweep.json", "--explain"
    ).stdout
    assert "GB/s with allreduce:Tree, " in text
    assert "slower by more than the spread" in text
    assert "NCCL_ALGO: leave unset" in text


def test_a_file_is_checked_against_a_node() -> None:
    Path("nccl.conf").write_text("NCCL_ALGO=auto\nNCCL_BUFSIZE=1\nNCCL_IB_HCA=mlx5\n", "utf-8")
    done = run_wirewatch("advise", "nccl-env", "--check", "--file", "nccl.conf", *DGX)
    assert (done.returncode, done.stderr) == (2, "")
    assert "\nFAILS: NCCL_ALGO=auto: init fails" in done.stdout
    assert "\nDOES NOT EXIST: NCCL_BUFSIZE=1: NCCL reads" in done.stdout
    assert "\nSLOWS: NCCL_IB_HCA=mlx5: it takes" in done.stdout
    assert done.stdout.endswith("\nFAILED: 3 settings, 3 of them with a remark\n")
    explained = run_wirewatch(
        "advise", "nccl-env", "--check", "--file", "nccl.conf", *DGX, "--explain"
    ).stdout
    assert "SLOWS: NCCL_IB_HCA=mlx5 (nccl.conf)\n    it takes" in explained
    assert explained.count("    source: ") == 3


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("NCCL_DEBUG=WARN\n", 0), ("NCCL_MAX_CTAS=4\n", 1), ("NCCL_PROTO=auto\n", 2)]
)
def test_the_exit_code_is_the_verdict(text: str, code: int) -> None:
    Path("conf").write_text(text, "utf-8")
    done = run_wirewatch("advise", "nccl-env", "--check", "--file", "conf", *DESCRIBED, "--json")
    assert done.returncode == code
    assert complaints("wirewatch.advise-nccl-env-check.1", done.stdout) == []
    assert json.loads(done.stdout)["health"] == ("ok", "degraded", "failed")[code]


def test_what_this_advises_passes_its_own_check() -> None:
    done = run_wirewatch("advise", "nccl-env", "--for", "training", *DGX, "--format", "env")
    assert f"\nNCCL_IB_HCA={HCAS}\n" in done.stdout
    Path("nccl.conf").write_text(done.stdout, "utf-8")
    assert run_wirewatch("advise", "nccl-env", "--check", "--file", "nccl.conf", *DGX).returncode == 0


def test_a_running_process_is_checked_with_the_files_that_it_reads() -> None:
    Path(".nccl.conf").write_text("NCCL_PROTO=LL\nNCCL_NTHREADS=64\n", "utf-8")
    Path("libnccl.so.2").write_bytes(b"\0" * 5000 + b"NCCL version 2.21.5+cuda12.4\0")
    script = (
        "import mmap; file = open('libnccl.so.2', 'rb')\n"
        "text = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); print(flush=True); input()"
    )
    environment = {"HOME": str(Path.cwd()), "NCCL_NTHREADS": "512", "NCCL_MAX_CTAS": "4"}
    with Popen([sys.executable, "-c", script], env=environment, stdin=PIPE, stdout=PIPE) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdout.readline()
        done = run_wirewatch("advise", "nccl-env", "--check", "--pid", str(job.pid), *DESCRIBED)
        job.stdin.close()
    assert done.returncode == 1
    first = done.stdout.partition("\n")[0]
    assert first.startswith(f"NCCL's settings of process {job.pid}, as it began, for 8 ")
    assert first.endswith(", NCCL 2.21.5")
    assert f"SLOWS: NCCL_MAX_CTAS=4 (/proc/{job.pid}/environ)" in done.stdout
    assert f"SLOWS: NCCL_PROTO=LL ({Path.cwd()}/.nccl.conf)" in done.stdout
    assert "NCCL_NTHREADS=512 is read first, and counts" in done.stdout


def test_what_cannot_be_read_is_not_known() -> None:
    with Popen([sys.executable, "-c", ""]) as ended:
        pass
    done = run_wirewatch("advise", "nccl-env", "--check", "--pid", str(ended.pid), *DESCRIBED)
    assert done.returncode == 3
    assert f"NOT KNOWN: /proc/{ended.pid}/environ" in done.stdout
    assert done.stdout.endswith("\nUNKNOWN: 0 settings, 0 of them with a remark\n")


@pytest.mark.parametrize("fault", ["ib-port-slow", "ib-port-down"])
def test_the_ports_are_those_that_gpu_nic_maps(fault: str) -> None:
    words = (*DGX, "--overlay", fault, "--json")
    mapped = json.loads(run_wirewatch("advise", "gpu-nic", *words).stdout)
    advised = json.loads(run_wirewatch("advise", "nccl-env", "--for", "training", *words).stdout)
    (hcas,) = [one["value"] for one in mapped["settings"] if one["name"] == "NCCL_IB_HCA"]
    assert [one["value"] for one in advised["variables"] if one["name"] == "NCCL_IB_HCA"] == [hcas]


def test_standard_input_is_a_file() -> None:
    words = ("advise", "nccl-env", "--check", "--file", "-", *DESCRIBED)
    done = CliRunner().invoke(cli, words, input="NCCL_ALGO=auto\n")
    assert done.exit_code == 2
    assert "\nFAILS: NCCL_ALGO=auto: init fails" in done.output
    too_much = CliRunner().invoke(cli, words, input="#" * (LIMIT + 1), standalone_mode=False)
    assert str(too_much.exception) == f"standard input: more than {LIMIT} bytes, which no settings take"


def test_a_file_that_may_not_be_read_is_not_known() -> None:
    Path("secret").touch(0o000)
    with nullcontext() if os.geteuid() else filesystem_ids(NOBODY, NOBODY):
        places = of_named_file(Path("secret"))
    assert [one.origin for one in places.not_read] == ["secret"]
    assert check(places, NcclNode(), (), 0.0)[1] is Health.UNKNOWN


@pytest.mark.parametrize(
    ("made", "settings", "read", "not_read"),
    [
        ({}, {}, [], []),
        ({"etc/nccl.conf": "NCCL_A=1"}, {}, ["/etc/nccl.conf"], []),
        ({"etc/nccl.conf": None}, {}, [], ["/etc/nccl.conf"]),
        ({"home/.nccl.conf": "NCCL_A=1"}, {"HOME": "/home"}, ["/home/.nccl.conf"], []),
        ({"home/.nccl.conf": "NCCL_A=1"}, {}, [], []),
        ({"home/.nccl.conf": "x", "a": "NCCL_A=1"}, {"HOME": "/home", "NCCL_CONF_FILE": "/a"}, ["/a"], []),
        ({"home/.nccl.conf": None}, {"HOME": "/home"}, [], ["/home/.nccl.conf"]),
    ],
)
def test_the_files_that_an_nccl_reads(
    tmp_path: Path, made: dict[str, str | None], settings: dict[str, str], read: list[str], not_read: Any
) -> None:
    """A folder in the place of a file cannot be read."""
    for name, text in made.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir() if text is None else (tmp_path / name).write_text(text, "utf-8")
    environment = SimpleNamespace(settings=[SimpleNamespace(name=k, value=v) for k, v in settings.items()])
    found = vars(module)["_with_files"]("it", environment, tmp_path)
    assert [one.origin for one in found.sources[1:]] == read
    assert [one.origin for one in found.not_read] == not_read


GONE, DENIED = Absent(Why.MISSING, "no such file"), Absent(Why.DENIED, "not yours")


@pytest.mark.parametrize(
    ("environ", "cmdline", "why"),
    [
        (b"NCCL_A=1\0", b"python", None),
        (b"NCCL_A=1\0", b"", None),
        (b"", b"python", None),
        (b"", DENIED, None),
        (b"", b"", "it is empty: a process of the kernel, or a zombie"),
        (GONE, GONE, "no such process is here"),
        (Absent(Why.LOST, "gone"), b"", "no such process is here"),
        (DENIED, b"python", "not yours"),
    ],
)
def test_the_environment_of_a_process(
    monkeypatch: pytest.MonkeyPatch, environ: Any, cmdline: Any, why: str | None
) -> None:
    files = {"/proc/7/environ": environ, "/proc/7/cmdline": cmdline}
    monkeypatch.setattr(module, "_bytes", lambda path: files.get(str(path), GONE))
    found = module.of_process(7)
    assert found.of == "process 7, as it began"
    assert [(one.origin, one.why) for one in found.not_read] == ([("/proc/7/environ", why)] if why else [])
    names = [one.name for source in found.sources for one in source.settings]
    assert names == (["NCCL_A"] if isinstance(environ, bytes) and environ else [])


def test_a_recording_is_checked_as_its_probe_ran() -> None:
    done = run_wirewatch("advise", "nccl-env", "--check", "--replay", "demo-dgx-h200")
    assert done.returncode == 1
    assert "NCCL_NVLS_ENABLE=0 (environment of the probe)" in done.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "give --for inference or --for training, or --check"),
        (("--for", "training", "--pid", "1"), "give --for inference or --for training, or --check"),
        (("--for", "training", "--format", "shell", "--json"), "give one of --format and --json"),
        (("--check", "--for", "training"), "--for and --format advise; --check says what is wrong"),
        (("--check", "--pid", "1", "--file", "x"), "--pid is a process of this machine"),
        (("--check", "--file", "nowhere"), "nowhere: ENOENT"),
        (("--check", "--file", "."), ".: EISDIR"),
        (("--check", "--file", "noise"), "noise: neither an environment nor text with settings of NCCL"),
        (("--check", "--nccl", "new"), "--nccl: 'new' is not a version, such as 2.28.9"),
        (("--for", "training", "--machine", "8xH100", "--measured", "nowhere"), "nowhere"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line(words: tuple[str, ...], complaint: str) -> None:
    Path("noise").write_bytes(bytes(range(256)))
    assert complaint in refused(USAGE, "advise", "nccl-env", *words)
