"""`wirewatch advise cost` as a process: the sentence first, one document, and one line for what is wrong."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from tests.lab.cli.test_compare import printed
from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import USAGE, refused
from tests.processes import run_wirewatch
from tests.rows import each
from wirewatch import cli
from wirewatch_lab.advice.shapes import SHAPES
from wirewatch_lab.advice.times.estimate import Ranks
from wirewatch_lab.cli.advise import cost as module

COST = ("advise", "cost")
H100 = (*COST, "--machine", "8xH100+8xNDR")
SERVED = ("--model", "llama-3-70b", "--tp", "4", "--tokens-per-second", "30")


@pytest.fixture
def floors(tmp_path: Path) -> str:
    """What nccl-tests would print of 4 GPUs whose 8 B and 1 MiB take 60 us."""
    (tmp_path / "floors").write_text(printed(60.0), "utf-8")
    return str(tmp_path / "floors")


def test_by_itself_it_shows_the_cliff_times_and_algorithms() -> None:
    short, done = run_wirewatch(*H100), run_wirewatch(*H100, "--explain")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(short.stdout.splitlines()) <= 15
    assert "beside NVLink, PCIe 7.1x less and the network 9.0x less" in short.stdout
    assert lines[0].startswith(
        "all_reduce over 8 GPUs, 8 NVIDIA H100 80GB HBM3 with 8 ports NDR, as described: "
    )
    assert "beside NVLink, PCIe 7.1x less and the network 9.0x less" in done.stdout
    assert "18 links x 25 GB/s over NVSwitch; the driver shows 478.1" in done.stdout
    assert all(
        f" {name} " in done.stdout for name in ("Ring", "Tree", "NVLS", "halving-doubling *", "alltoall")
    )


def test_a_model_is_answered_in_a_screen() -> None:
    """By the floors of source 004 on 4 H100, 23.1 us one by one and 13.7 in a graph."""
    done = run_wirewatch(*COST, "--machine", "4xH100", *SERVED)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) <= 15
    first = "\n".join(done.stdout.splitlines()[:6])
    assert "2.19 ms in 160 all-reduces of 16 KiB, 13.7 us each" in first
    assert "23.1 / 13.7" in done.stdout
    assert "At 30 tokens/s a token has 33.3 ms; all-reduces take 11% launched one by one" in first
    assert "It is latency, not bandwidth" in first


def test_what_was_measured_comes_before_references(floors: str) -> None:
    done = run_wirewatch(*COST, "--machine", "4xH100", "--measured", floors, *SERVED, "--explain")
    (used,) = (line for line in done.stdout.splitlines() if line.endswith(floors))
    assert "measured here" in used
    assert floors not in run_wirewatch(*COST, "--machine", "4xH100", *SERVED, "--explain").stdout


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
    assert ("on the links" in run_wirewatch(*COST, "--machine", machine, "--explain").stdout) is runs


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
    """By TP 16 a token takes six percent more, give or take far more; TP 12 divides no 64 heads."""
    job = (*COST, "--machine", "8xH100+8xNDR", "--model", "llama-3-70b")
    text = run_wirewatch(*job, "--nodes", "8", "--tp", "64", "--explain").stdout
    assert "Decode gains up to TP 8" in text
    assert "whether TP 16 gains more than TP 8 is not decided: a token takes between -40 and +53 %." in text
    assert all(f"\n{tp:>10} " in text for tp in (1, 2, 4, 8, 16, 32, 64))
    text = run_wirewatch(*job, "--nodes", "2", "--tp", "12").stdout
    assert "TP 12 does not divide the model's 64 heads: engines refuse that." in text
    assert "TP 12 is the fastest" not in text
    two = run_wirewatch(*job, "--nodes", "2").stdout
    assert "TP 8 x PP 2 takes 8.86 ms a token, beside TP 16 not decided: between -50 and +38 %" in two


@each(
    ("more", "text"),
    [
        (
            ("--ep", "8"),
            "--ep: expert parallelism (all-to-alls of unevenly chosen experts) is neither placed",
        ),
        (("--cp", "2"), "--cp: context parallelism (keys and values passed round a ring) is neither placed"),
        (("--model", "DeepSeek-V3"), "'DeepSeek-V3' has latent attention (MLA): its cache is one vector a"),
    ],
)
def test_what_cannot_be_costed_right_is_refused_in_words(
    more: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("cost", "placement"):
        assert cli.run(["advise", command, "--machine", "8xH100", *more]) == USAGE
        assert text in capsys.readouterr().err


def test_a_model_that_only_all_machines_hold_is_answered_on_them(capsys: pytest.CaptureFixture[str]) -> None:
    """405B on 16 H100 of p5: TP 16 over the network, or a stage in each node; which is not decided."""
    job = ("advise", "cost", "--machine", "8xH100+p5", "--nodes", "2", "--model", "llama-3.1-405b")
    assert cli.run(list(job)) == 0
    text = capsys.readouterr().out
    assert "TP 8 x PP 2 on 2 x 8 NVIDIA H100" in text
    assert "TP 8 x PP 2 takes 39.59 ms a token, beside TP 16 not decided: between -24 and +14 %" in text
    assert "gains" not in text


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


# --- the parts of an answer


def part(name: str, /, *values: Any, **more: Any) -> Any:
    return vars(module)[f"_{name}"](*values, **more)


def model(**given: Any) -> Any:
    known = {"name": None, "layers": None, "hidden": None, "parameters": None, "kv_heads": None}
    return part("Model", **{**known, "experts": 0, "active": 0, **given})


WHOLE = {"layers": 80, "hidden": 8192, "parameters": 7e10}


@each(
    ("given", "trained", "why"),
    [
        ({}, False, ""),
        (WHOLE, False, ""),
        ({**WHOLE, "kv_heads": 8}, False, ""),
        ({**WHOLE, "experts": 8, "active": 8}, False, ""),
        ({"parameters": 7e10}, True, ""),
        ({"name": "llama-3-70b"}, False, ""),
        ({"name": "llama-3-70b", "active": 1}, False, "--model has its own"),
        ({"name": "llama-3-70b", "kv_heads": 1}, False, "--model has its own"),
        ({"kv_heads": 8}, True, "give --model"),
        ({"layers": 80, "hidden": 8192}, False, "give --model"),
        ({"parameters": 7e10}, False, "give --model"),
        ({"parameters": 7e10, "layers": 80}, True, "give --model"),
        ({"parameters": 7e10, "hidden": 80}, True, "give --model"),
        ({**WHOLE, "experts": 8}, False, "go together"),
        ({**WHOLE, "active": 8}, False, "go together"),
        ({**WHOLE, "experts": 8, "active": 9}, False, "no more than there are"),
        ({**WHOLE, "kv_heads": 9}, False, "--kv-heads 9 does not divide the 64 heads"),
        ({"parameters": 7e10, "kv_heads": 9}, True, ""),
        ({**WHOLE, "parameters": 7e9}, False, "are too few"),
    ],
)
def test_a_model_has_a_name_or_what_makes_it(given: Any, trained: bool, why: str) -> None:  # noqa: FBT001
    if why:
        with pytest.raises(click.UsageError, match=why):
            model(**given).shape(trained=trained)
        return
    shape = model(**given).shape(trained=trained)
    assert (shape is None) is (not given)
    assert shape is None or shape.layers == (0 if "layers" not in given and "name" not in given else 80)


ASKED: dict[str, Any] = {
    "tp": None, "prompt": None, "rate": None, "train": False, "dtype": "bfloat16", "nodes": 1, "gpus": None,
    "batch": 1, "context": 2048, "ops": (), "sizes": (), "tokens": 8192,
}  # fmt: skip
LLAMA = next(one for one in SHAPES if one.name == "llama-3-70b")
BARE = model(parameters=7e10).shape(trained=True)


@each(
    ("shape", "given", "why"),
    [
        (None, {}, ""),
        (LLAMA, {"tp": 4, "prompt": 9, "rate": 3.0, "train": True}, ""),
        (None, {"tp": 4}, "--tp is about a model"),
        (None, {"prompt": 4}, "--prompt is about a model"),
        (None, {"rate": 4.0}, "--tokens-per-second is about a model"),
        (BARE, {"tp": 4}, "--tp is about a model"),
        (BARE, {"train": True}, ""),
        (None, {"train": True}, "--train is about a model"),
        (LLAMA, {"train": True, "dtype": "int4"}, "not of int4"),
        (LLAMA, {"dtype": "int4"}, ""),
    ],
)
def test_what_is_asked_of_a_model_takes_one(shape: Any, given: Any, why: str) -> None:
    if not why:
        part("check", shape, {**ASKED, **given})
        return
    with pytest.raises(click.UsageError, match=why):
        part("check", shape, {**ASKED, **given})


@each(
    ("shape", "given", "known"),
    [
        (None, {}, {"ops": ("all_reduce",), "spans": (), "served": None, "trained": None, "by_size": True}),
        (LLAMA, {}, {"by_size": False, "trained": None}),
        (LLAMA, {"train": True, "tp": 8}, {"by_size": False, "trained": 8192, "tp": 8}),
        (LLAMA, {"sizes": (8, 4, 8)}, {"by_size": True, "sizes": (4, 8)}),
        (LLAMA, {"ops": ("alltoall",) * 2}, {"by_size": True, "ops": ("alltoall",), "primitives": ()}),
        (LLAMA, {"gpus": (2, 16), "nodes": 2}, {"by_size": True, "spans": (Ranks(2, 1), Ranks(16, 2))}),
    ],
)
def test_options_are_a_question(shape: Any, given: Any, known: dict[str, Any]) -> None:
    asked = part("question", shape, {**ASKED, **given}, SimpleNamespace(gpus=8))
    assert {name: getattr(asked, name) for name in known} == known
    assert ("all_reduce" in asked.primitives, bool(asked.primitives)) == (False, not given.get("ops"))


@each(
    ("ranks", "nodes", "found"),
    [
        (8, 1, Ranks(8, 1)), (9, 2, "cannot be shared out over 2"), (16, 2, Ranks(16, 2)),
        (17, 2, "17 GPUs are more than 2 x 8 = 16"), (10, 2, Ranks(10, 2)),
    ],
)  # fmt: skip
def test_ranks_are_spread_over_the_fewest_machines(ranks: int, nodes: int, found: Any) -> None:
    if isinstance(found, Ranks):
        assert part("span", ranks, 8, nodes) == found
        return
    with pytest.raises(click.UsageError, match=found):
        part("span", ranks, 8, nodes)


def served(*steps: tuple[int, float | None], fits: Any = None, error: float = 0.0) -> Any:
    rows = [
        SimpleNamespace(
            tp=tp, pp=1, fits=False if tp == fits else None,
            launches=[
                SimpleNamespace(launch="eager", step=step, error=error),
                SimpleNamespace(launch="graph", step=0.0, error=0.0),
            ],
        )
        for tp, step in steps
    ]  # fmt: skip
    return SimpleNamespace(decode=rows, judged_by="eager")


@each(
    ("one", "stops", "nodes", "text"),
    [
        (served((1, 8.0), (2, 5.0), (4, 4.0)), 4, 1,
         "Decode still gains at TP 4, the most here, where doubling saves 20 % of a token's time."),
        (served((1, 8.0), (4, 4.0)), 4, 2, "Decode still gains at TP 4, the most in one machine."),
        (served((1, 8.0), (16, 4.0)), 16, 2, "Decode still gains at TP 16, the most here."),
        (served((1, 8.0), (2, 5.0), (4, None)), 2, 1,
         "Decode still gains at TP 2, the most that is known here, where doubling saves 38 %"),
        (served((1, 8.0), (2, 7.9), (4, 7.8)), 1, 1, "Decode gains less than a tenth beyond TP 1."),
        (served((1, 8.0), (2, 5.0), (4, 4.9)), 2, 1,
         "Decode gains up to TP 2, where doubling saves 38 % of a token's time; less than a tenth beyond."),
        (served((1, 8.0), (2, 5.0), (4, 4.9), fits=1), 2, 1, "Decode gains less than a tenth beyond TP 2."),
        (served((1, 8.0), (2, 5.0), (4, 4.0), error=0.5), 2, 1,
         "whether TP 4 gains more than TP 2 is not decided: a token takes between -40 and +0 %."),
        (served((1, 8.0), (2, 7.0), error=0.5), 1, 1,
         "Whether TP 2 gains more than TP 1 is not decided: a token takes between -25 and +0 %."),
        (served((8, 5.0), (16, 4.0), fits=8), 16, 1, "the model fits, or its time is known, at TP 16 alone."),
    ],
)  # fmt: skip
def test_where_decode_stops_gaining(one: Any, stops: int, nodes: int, text: str) -> None:
    found = part("gains", SimpleNamespace(nodes=nodes, gpus=8), one, stops)
    assert text in found
    assert found.endswith(".")


def launched(seconds: float | None, share: float | None = 0.5) -> Any:
    step = None if seconds is None else 2 * seconds
    collective = None if seconds is None else SimpleNamespace(seconds=seconds)
    return SimpleNamespace(
        collective=collective, communication=seconds, step=step, hidden_step=step, share=share
    )


@pytest.mark.parametrize(
    ("tp", "launches", "cells"),
    [
        (2, [launched(1e-3), launched(1e-3)], ("1000.0", "1.00", "2.00", "2.00", "50 %")),
        (2, [launched(1e-3), launched(2e-3)],
         ("1000.0 / 2000.0", "1.00 / 2.00", "2.00 / 4.00", "2.00 / 4.00", "50 %")),
        (2, [launched(None, None), launched(2e-3)],
         ("- / 2000.0", "- / 2.00", "- / 4.00", "- / 4.00", "- / 50 %")),
        (1, [launched(1e-3), launched(1e-3)], ("1000.0", "-", "2.00", "2.00", "-")),
    ],
)  # fmt: skip
def test_eager_and_graph_stand_side_by_side_where_they_differ(tp: int, launches: Any, cells: Any) -> None:
    row = SimpleNamespace(tp=tp, pp=1, launches=launches, held=2e9, fits=tp == 2, work=None, all_reduces=160)
    assert part("cells", row) == cells
    assert part("decoded", row)[:4] == (str(tp), "2.0" + ("" if tp == 2 else " (too much)"), "-",
                                        "160" if tp == 2 else "-")  # fmt: skip
    row.work, row.fits = 5e-3, None
    assert part("decoded", row)[1:3] == ("2.0", "5.00")


def test_without_matplotlib_or_a_place_no_picture_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = SimpleNamespace(machine="m", cliff=())
    monkeypatch.setattr(module, "plotted", lambda _: [("a", 1.0, "1", False)])
    part("draw", made, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text("utf-8").startswith("<?xml")
    with pytest.raises(click.UsageError, match="cannot be written: No such file"):
        part("draw", made, tmp_path / "none" / "a.svg")
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(click.UsageError, match="pip install"):
        part("draw", made, tmp_path / "a.svg")
