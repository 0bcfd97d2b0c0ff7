"""`wirewatch advise cost` as a process: the sentence first, one document, and one line for what is wrong."""

import json
from pathlib import Path

import pytest

from tests.lab.cli.test_compare import printed
from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import USAGE, refused
from tests.processes import run_wirewatch

COST = ("advise", "cost")
H100 = (*COST, "--machine", "8xH100+8xNDR")
SERVED = ("--model", "llama-3-70b", "--tp", "4", "--tokens-per-second", "30")


@pytest.fixture
def floors(tmp_path: Path) -> str:
    """What nccl-tests would print of 4 GPUs whose 8 B and 1 MiB take 60 us."""
    (tmp_path / "floors").write_text(printed(60.0), "utf-8")
    return str(tmp_path / "floors")


def test_by_itself_it_shows_the_cliff_times_and_algorithms() -> None:
    done = run_wirewatch(*H100)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "all_reduce over 8 GPUs, 8 NVIDIA H100 80GB HBM3 with 8 ports NDR, as described: "
    )
    assert "beside NVLink, PCIe 7.1x less and the network 9.0x less" in done.stdout
    assert "18 links x 25 GB/s over NVSwitch; the driver shows 478.1" in done.stdout
    assert all(
        f" {name} " in done.stdout for name in ("Ring", "Tree", "NVLS", "halving-doubling *", "alltoall")
    )
    assert len(lines) <= 40


def test_a_model_is_answered_in_a_screen() -> None:
    """By the floors of source 004 on 4 H100, 23.1 us one by one and 13.7 in a graph."""
    done = run_wirewatch(*COST, "--machine", "4xH100", *SERVED)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) <= 40
    first = "\n".join(done.stdout.splitlines()[:6])
    assert "2.19 ms in 160 all-reduces of 16 KiB, 13.7 us each" in first
    assert "Launched one by one: 3.70 ms, 23.1 us each" in first
    assert "At 30 tokens/s a token has 33.3 ms; all-reduces take 11% launched one by one" in first
    assert "It is latency, not bandwidth" in first


def test_what_was_measured_comes_before_references(floors: str) -> None:
    done = run_wirewatch(*COST, "--machine", "4xH100", "--measured", floors, *SERVED)
    (used,) = (line for line in done.stdout.splitlines() if line.endswith(floors))
    assert "measured here" in used
    assert floors not in run_wirewatch(*COST, "--machine", "4xH100", *SERVED).stdout


@pytest.mark.parametrize(
    "more",
    [
        (), SERVED, (*SERVED, "--prompt", "2048", "--train", "--nodes", "2", "--size", "100MB"),
        ("--parameters", "70B", "--train"), ("--model", "qwen3-235b-a22b", "--train", "--op", "alltoall"),
        ("--layers", "80", "--hidden", "8192", "--parameters", "70e9", "--tp", "16", "--nodes", "2"),
    ],
)  # fmt: skip
def test_the_document_has_its_schema(more: tuple[str, ...]) -> None:
    done = run_wirewatch(*H100, *more, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert complaints("wirewatch.advise-cost.1", done.stdout) == []
    figures = json.loads(done.stdout)["figures"]
    assert figures
    assert all(one["source"] and one["confidence"] and one["when_not"] for one in figures)


def test_each_figure_has_a_source_a_confidence_and_a_when_not() -> None:
    done = run_wirewatch(*H100, *SERVED, "--train", "--op", "all_reduce", "--explain")
    assert done.returncode == 0
    figures = [one for one in done.stdout.split("\n\n") if "\n  source: " in one]
    assert len(figures) > 30
    for one in figures:
        assert one.splitlines()[2].startswith("  source: ")
        assert "; confidence: " in one
        assert one.splitlines()[-1].startswith("  not when: ")


def test_100_mb_are_the_hidden_states_of_6104_tokens() -> None:
    done = run_wirewatch(*H100, "--model", "llama-3-70b", "--size", "100MB")
    assert "100 MB is the hidden state of 6,104 tokens" in done.stdout


@pytest.mark.parametrize(("machine", "runs"), [("8xH100", True), ("8xA100", False), ("8xL40S", False)])
def test_nvls_takes_a_switch_that_adds_up(machine: str, runs: bool) -> None:  # noqa: FBT001
    done = run_wirewatch(*COST, "--machine", machine, "--op", "all_reduce", "--json")
    rows = {row["traffic"]["algorithm"]: row["traffic"] for row in json.loads(done.stdout)["algorithms"]}
    assert rows["NVLS"]["nccl"] is runs
    assert ("on the links" in run_wirewatch(*COST, "--machine", machine).stdout) is runs


def test_ranks_are_compared_side_by_side() -> None:
    done = run_wirewatch(*H100, "--nodes", "2", "--gpus", "2,4,16", "--size", "64M", "--op", "all_reduce")
    titles = [line for line in done.stdout.splitlines() if line.startswith("Time of a collective over ")]
    assert [line[26:] for line in titles] == ["2 GPUs:", "4 GPUs:", "16 GPUs in 2 nodes:"]


def test_two_nodes_of_eight_let_125_mb_a_gpu_cross() -> None:
    done = run_wirewatch(*H100, "--nodes", "2", "--size", "1GB", "--op", "all_reduce", "--json")
    rows = {row["traffic"]["algorithm"]: row["traffic"] for row in json.loads(done.stdout)["algorithms"]}
    assert rows["hierarchical"]["crosses"] == rows["SHARP"]["crosses"] == 125e6


def test_140_gb_of_gradients() -> None:
    done = run_wirewatch(*H100, "--parameters", "70B", "--train")
    assert "a GPU sends 245 GB a step by DDP, 367.5 GB by FSDP" in done.stdout
    assert "Adam's state are 1.12 TB in all" in done.stdout


def test_a_tp_over_several_machines_is_compared_with_those_between() -> None:
    """By TP 16 a token still takes a seventh less than by TP 8; TP 12 divides no 64 heads."""
    job = (*COST, "--machine", "8xH100+8xNDR", "--model", "llama-3-70b")
    text = run_wirewatch(*job, "--nodes", "8", "--tp", "64").stdout
    assert "Decode gains up to TP 16" in text
    assert all(f"\n{tp:>4} " in text for tp in (1, 2, 4, 8, 16, 32, 64))
    text = run_wirewatch(*job, "--nodes", "2", "--tp", "12").stdout
    assert "TP 12 does not divide the model's 64 heads: engines refuse that." in text
    assert "TP 12 is the fastest" not in text
    assert "TP 8, the most in one machine" in run_wirewatch(*job, "--nodes", "2").stdout


def test_a_model_that_does_not_fit_says_where_it_would() -> None:
    """405.9e9 x 2 bytes over 16 GPUs: 50.8 GB of each 80."""
    text = run_wirewatch(*COST, "--machine", "2xA100", "--model", "llama-3.1-405b").stdout
    assert (
        "fits at none of these degrees; from TP 16 on it would, on 8 such machines: --nodes 8 --tp 16" in text
    )


def test_quantised_weights_leave_activations_and_keys_in_16_bits() -> None:
    job = (*COST, "--machine", "8xH100", "--model", "llama-3-70b", "--tp", "8", "--json")
    of_16, of_4 = (
        json.loads(run_wirewatch(*job, "--dtype", dtype).stdout)["serving"]["decode"][-1]
        for dtype in ("bfloat16", "int4")
    )
    assert of_4["message_bytes"] == of_16["message_bytes"] == 16384
    keys = 2048 * 320 * 1024 / 8
    assert of_4["held"] - keys == pytest.approx((of_16["held"] - keys) / 4)


def test_ports_that_are_not_for_gpus_are_not_counted() -> None:
    text = run_wirewatch(*COST, "--replay", "demo-dgx-h200").stdout
    assert "8 of 10 RDMA ports, a GPU's share of them" in text


def test_a_model_s_name_has_letters_of_any_case() -> None:
    done = run_wirewatch(*H100, "--model", "Llama-3-70B")
    assert (done.returncode, done.stdout.split()[0]) == (0, "llama-3-70b")


def test_what_cannot_be_split_so_has_the_reason_in_place_of_figures() -> None:
    done = run_wirewatch(*H100, "--nodes", "32", "--model", "llama-3-70b", "--train")
    (stages,) = (line for line in done.stdout.splitlines() if line.startswith("  PP "))
    assert " ".join(stages.split()) == "PP - - - not possible: 80 layers are fewer than 256 stages"


def test_a_recording_is_a_machine_with_its_ports() -> None:
    done = run_wirewatch(*COST, "--replay", "demo-dgx-h200", "--json")
    steps = {step["name"]: step for step in json.loads(done.stdout)["cliff"]}
    assert (steps["network"]["known"], steps["network"]["rate"]) == (True, 50e9)


def test_a_picture_is_written_whole(tmp_path: Path) -> None:
    done = run_wirewatch(*H100, "--plot", str(tmp_path / "cliff.svg"))
    assert done.returncode == 0
    assert "<svg" in (tmp_path / "cliff.svg").read_text("utf-8")
    assert "cannot be written" in refused(USAGE, *H100, "--plot", str(tmp_path / "no" / "cliff.svg"))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--tp", "4"), "--tp is about a model"),
        (("--tokens-per-second", "30"), "--tokens-per-second is about a model"),
        (("--train",), "--train is about a model"),
        (("--model", "llama-3-70b", "--tp", "16"), "16 GPUs are more than 1 x 8 = 8: see --nodes"),
        (("--model", "llama-3-70b", "--tp", "9", "--nodes", "2"), "cannot be shared out"),
        (("--model", "llama-3-70b", "--layers", "3"), "--model has its own"),
        (("--model", "llama-3-70b", "--experts", "8"), "--model has its own"),
        (("--kv-heads", "8"), "give --model, or --layers"),
        (("--layers", "80"), "give --model, or --layers"),
        (("--parameters", "70B"), "give --model, or --layers"),
        (("--parameters", "70B", "--layers", "80", "--hidden", "8192", "--experts", "8"), "go together"),
        (("--gpus", "2,16"), "16 GPUs are more than 1 x 8 = 8"),
        (("--gpus", "1"), "is not a list of numbers from 2"),
        (("--size", "0"), "is not a size"),
        (("--parameters", "many"), "is not a count"),
        (("--model", "gpt-9"), "is not one of 'llama-2-7b'"),
        (("--model", "llama-3-70"), "no model 'llama-3-70' is known: did you mean 'llama-3-70b'"),
        (("--parameters", "7B", "--layers", "3", "--hidden", "4096", "--kv-heads", "9"), "does not divide"),
        (("--parameters", "70B", "--train", "--dtype", "int4"), "not of int4"),
        (
            ("--parameters", "7B", "--layers", "80", "--hidden", "8192"),
            "--parameters 7e+09 are too few: attention alone takes 21,476",
        ),
        (("--tokens-per-second", "nan", "--model", "llama-3-70b"), "--tokens-per-second"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line(more: tuple[str, ...], why: str) -> None:
    assert why in refused(USAGE, *H100, *more)
