"""`wirewatch sweep` as a process: what it refuses, in one line, and what it leaves in its folder."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import click
import pytest
from click.testing import CliRunner

from tests.lab.study.sweeps import CURVES, OPTIONS, Node, header
from tests.node.cli.checks import noted
from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import USAGE, refused
from tests.processes import run_wirewatch
from wirewatch.cli.hardware import own_state
from wirewatch.config import Config
from wirewatch.core.probe import NOT_KNOWN
from wirewatch.core.types import Absent, Why
from wirewatch.probe.gate import Refusal, SkipReason
from wirewatch_lab.cli import sweep as module
from wirewatch_lab.cli.sweep import Wish
from wirewatch_lab.study.curve import Configuration
from wirewatch_lab.study.grid import Capabilities, SweepOptions
from wirewatch_lab.study.records import Records, keys, read_records
from wirewatch_lab.study.report import ReportError
from wirewatch_lab.study.sweep import SweepEnd, batches, start_seconds, usual_seconds

UNKNOWN = 3
SMALL = header(CURVES[:2], options=replace(header().options, repeats=2))
WRONG = [
    ((), "give --out DIR for a new sweep, or one of --resume DIR and --export DIR"),
    (("--out", "x", "--resume", "x"), "give --out DIR for a new sweep, or one of"),
    (("--replay", "h200x4-idle", "--out", "x"), "a sweep cannot be replayed"),
    (("--resume", "x", "--size", "8"), "a sweep goes on as it was begun: without --size"),
    (("--export", "x", "--repeats", "5"), "a sweep goes on as it was begun: without --repeats"),
    (("--resume", "x"), "x holds no sweep: sweep.jsonl: No such file or directory"),
    (("--export", "x"), "x holds no sweep: sweep.jsonl: No such file or directory"),
    (("--out", "x", "--op", "all_to_all"), "'all_to_all' is not one of "),
    (("--out", "x", "--size", "8:64K:1"), "'8:64K:1' is no range"),
    (("--out", "x", "--size", "8:64K:2:2"), "'8:64K:2:2' is no range"),
    (("--out", "x", "--size", "64K:8"), "'64K:8' ends below its beginning"),
    (("--out", "x", "--size", "8,lots"), "'lots' is not a size"),
    (("--out", "x", "--algorithm", "Ring,Star"), "'Star' is not one of auto, Ring, Tree, NVLS, NVLSTree"),
    (("--out", "x", "--protocol", ""), "'' is not one of auto, Simple, LL, LL128"),
    (("--out", "x", "--gpus", "2,1"), "'2,1' is not a list of numbers from 2 to 1024"),
    (("--out", "x", "--registered", "maybe"), "'maybe' is not one of on, off"),
    (("--out", "x", "--vary", "PATH=1"), "'PATH=1' is not NCCL_NAME=VALUE,VALUE,..."),
    (("--out", "x", "--vary", "NCCL_ALGO=Ring"), "NCCL_ALGO cannot be varied: --algorithm does that"),
    (("--out", "x", "--vary", "NCCL_DEBUG=INFO"), "NCCL_DEBUG cannot be varied: a probe sets it itself"),
    (("--out", "x", "--vary", "NCCL_A=1", "--vary", "NCCL_A=2"), "--vary: a setting is given twice"),
    (("--out", "x", "--repeats", "0"), "--repeats: '0' is not a whole number from 1 to 1000"),
]


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()


@pytest.mark.parametrize(("words", "why"), WRONG)
def test_what_cannot_be_meant_is_one_line(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    assert why in refused(USAGE, "sweep", *words)
    assert not (tmp_path / "x").exists()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    assert "is not empty; --resume goes on" in refused(USAGE, "sweep", "--out", str(tmp_path))


def test_where_there_is_nothing_to_measure_with_it_is_unknown_as_of_a_probe(tmp_path: Path) -> None:
    done = run_wirewatch("sweep", "--out", "new", "--engine", "nccl")
    probed = run_wirewatch("probe", "--engine", "nccl")
    assert (done.returncode, done.stdout, done.stderr) == (UNKNOWN, probed.stdout, probed.stderr)
    assert not (tmp_path / "new").exists()


def test_a_node_whose_probes_another_container_runs_says_so(tmp_path: Path) -> None:
    (tmp_path / "toml").write_text("[probe]\nprober = '/run/prober.sock'\n", "utf-8")
    assert "[probe] prober: another container" in refused(USAGE, "sweep", "--out", "x", "--config", "toml")


def test_what_there_is_of_a_sweep_can_be_exported(tmp_path: Path) -> None:
    node = Node(tmp_path / "half", stops=5)
    node.sweep(SMALL)
    done = run_wirewatch("sweep", "--export", "half")
    assert done.returncode == 0, done.stderr
    assert "not offered: PAT: no" in done.stdout
    assert "not all of it: --resume half goes on" in done.stdout
    text = (node.folder / "sweep.json").read_text("utf-8")
    assert complaints("wirewatch.sweep.1", text) == []
    assert (
        sum(len(point["seconds"]) for curve in json.loads(text)["curves"] for point in curve["points"]) == 5
    )


def test_a_sweep_that_is_complete_needs_no_gpu_to_be_resumed(tmp_path: Path) -> None:
    node = Node(tmp_path / "whole")
    node.sweep(SMALL)
    done = run_wirewatch("sweep", "--resume", "whole")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("6 points of 2 curves in whole: sweep.csv, sweep.json, report.html\n")
    assert read_records(node.folder).complete


# --- in this process


@dataclass(frozen=True)
class Wires:
    """Wires by their name."""

    name: str
    multicast: object = None


def private(name: str) -> Any:
    return vars(module)[f"_{name}"]


class Wished:
    """Notes what a command line would measure, or write of what there is."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.notes: list[Any] = []
        patch.setattr(module, "_measure", lambda *given: noted(self.notes, given, 2))
        patch.setattr(module, "_finish", lambda *given: noted(self.notes, given, 0))
        patch.setattr(module, "read_records", lambda folder: f"records of {folder}")
        patch.setattr(module, "print_comparison", lambda *given, **more: noted(self.notes, (given, more), 1))
        patch.setattr(module, "read_study", str)

    def run(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(module.sweep, words)
        return done.exit_code, done.output


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ((), SweepOptions("")),
        (("--op", "alltoall", "--op", "alltoall"), SweepOptions("", ("alltoall",))),
        (("--size", "64,8", "--size", "8:32"), SweepOptions("", sizes=(8, 16, 32, 64))),
        (("--gpus", "2,4"), SweepOptions("", ranks=(2, 4))),
        (("--registered", "on,off"), SweepOptions("", registered=(True, False))),
        (("--out-of-place", "--engine", "nccl", "--iterations", "7"),
         SweepOptions("nccl", in_place=False, iterations=7)),
        (("--vary", "NCCL_A=1,2", "--vary", "NCCL_B="),
         SweepOptions("", varied=(("NCCL_A", ("1", "2")), ("NCCL_B", ("",))))),
    ],
)  # fmt: skip
def test_options_are_what_is_swept(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], options: SweepOptions
) -> None:
    one = Wished(monkeypatch)
    assert one.run("--out", "x", "--seed", "0", *words) == (2, "")
    assert one.notes == [(Path("x"), Wish(options, 0), None, None)]


def test_a_sweep_is_begun_or_goes_on_or_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Wished(monkeypatch)
    drawn = (one.run("--out", "x")[0], one.run("--out", "x")[0], *(note[1].seed for note in one.notes))
    assert drawn[:2] == (2, 2)
    assert drawn[2] != drawn[3]
    assert one.run("--resume", "x", "--config", "c", "--owner", "slurm:7") == (2, "")
    assert one.notes[2] == (Path("x"), None, Path("c"), "slurm:7")
    assert one.run("--export", "x") == (0, "")
    assert one.notes[3] == ("records of x", Path("x"))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--compare", "a", "b"), 1, (("a", "b", None), {"as_json": False, "explain": False})),
        (
            ("--compare", "a", "b", "--fail-under", "90", "--json"),
            1,
            (("a", "b", 0.9), {"as_json": True, "explain": False}),
        ),
        (("--compare", "a", "b", "--op", "alltoall"), 2, "--compare measures nothing: without --op"),
        (("--compare", "a", "b", "--config", "c"), 2, "--compare measures nothing: without --config"),
        (("--compare", "a", "b", "--explain"), 1, (("a", "b", None), {"as_json": False, "explain": True})),
        (("--out", "x", "--json"), 2, "--fail-under, --json and --explain go with --compare"),
        (("--out", "x", "--fail-under", "90"), 2, "--fail-under, --json and --explain go with --compare"),
        (("--resume", "x", "--out-of-place"), 2, "without --out-of-place"),
        (("--out", "x", "--export", "y"), 2, "give --out DIR for a new sweep"),
        ((), 2, "give --out DIR for a new sweep"),
        (("--out", "x", "--replay", "r"), 2, "a sweep cannot be replayed"),
        (("--out", "x", "--vary", "NCCL_A=1", "--vary", "NCCL_A=2"), 2, "a setting is given twice"),
    ],
)
def test_what_goes_together(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, said: Any
) -> None:
    for name in ("a", "b"):
        Path(name).touch()
    one = Wished(monkeypatch)
    ended, text = one.run(*words)
    assert (ended, one.notes) == (code, [] if isinstance(said, str) else [said])
    assert not isinstance(said, str) or said in text


@pytest.mark.parametrize(
    ("error", "text"), [(OSError(28, "no space"), "x: no space"), (OSError("odd"), "x: odd")]
)
def test_what_cannot_be_written_is_one_line(
    error: OSError, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> int:
        raise error

    assert private("ended")(Path("x"), fails) == 70
    assert capsys.readouterr().err == f"wirewatch: {text}\n"
    assert private("ended")(Path("x"), lambda: 3) == 3


class Kept:
    """A file of a sweep."""

    def __init__(self, *, begun: bool = True, complete: bool = False) -> None:
        self.begun = begun
        self.records = SimpleNamespace(complete=complete, measured={1: 1}, header=SMALL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("wish", "kept", "end", "code", "measured_"),
    [
        ("wish", Kept(), SweepEnd("complete"), 0, True),
        ("wish", Kept(complete=True), SweepEnd("complete"), 0, True),
        (None, Kept(), SweepEnd("complete"), 0, True),
        (None, Kept(complete=True), None, 0, False),
        ("wish", Kept(begun=False), None, UNKNOWN, True),
        (None, Kept(), SweepEnd("stopped", "ended by SIGINT"), 70, True),
        (None, Kept(), SweepEnd("gave_way", "a job came"), UNKNOWN, True),
        ("wish", Kept(begun=False), SweepEnd("failed", "no worker"), UNKNOWN, True),
    ],
)
def test_how_a_sweep_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wish: Any, kept: Kept,
    end: SweepEnd | None, code: int, *, measured_: bool,
) -> None:  # fmt: skip
    notes: list[Any] = []
    file = SimpleNamespace(
        create=lambda _: noted(notes, "new", kept), resume=lambda _: noted(notes, "on", kept)
    )
    monkeypatch.setattr(module, "SweepFile", file)
    monkeypatch.setattr(module, "measure", lambda *given: noted(notes, given[2:], end))
    monkeypatch.setattr(module, "_finish", lambda *_: 0)
    assert private("measure")(Path("x"), wish, None, "slurm:7") == code
    assert notes == ["new" if wish else "on", *([(wish, "slurm:7")] if measured_ else [])]
    said = capsys.readouterr().err.splitlines()
    whole = [] if end is None or end.how == "complete" else [f"wirewatch: {end.why}"]
    going = [f"1 of {len(list(keys(SMALL)))} are measured; go on with: wirewatch sweep --resume x"]
    assert said == [*whole, *(going if whole and kept.begun else [])]


@pytest.mark.parametrize(
    ("wrong", "complete", "report"), [(0, True, True), (3, False, True), (0, True, False)]
)
def test_what_there_is_at_the_end_is_written_and_said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: int,
    *,
    complete: bool,
    report: bool,
) -> None:
    points = [SimpleNamespace(wrong=wrong or None), SimpleNamespace(wrong=0)]

    def write(*_: Any) -> None:
        if not report:
            raise ReportError("no matplotlib")

    monkeypatch.setattr(module, "export", lambda *_: SimpleNamespace(curves=[SimpleNamespace(points=points)]))
    monkeypatch.setattr(module, "summary_lines", lambda _: ["summary"])
    monkeypatch.setattr(module, "write_report", write)
    records = SimpleNamespace(complete=complete, header=SMALL)
    assert private("finish")(records, Path("x")) == (2 if wrong else 0)
    shown, said = capsys.readouterr()
    files = ", ".join(["sweep.csv", "sweep.json", *(["report.html"] if report else [])])
    assert shown.splitlines() == [
        "summary",
        *([f"WRONG DATA: {wrong} elements were not what they should be"] if wrong else []),
        f"2 points of 1 curves in x: {files}" + ("" if complete else ", not all of it: --resume x goes on"),
    ]
    assert said == ("" if report else "wirewatch: no report.html: no matplotlib\n")


def test_progress_counts_workers_and_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node(tmp_path / "x")
    node.sweep(SMALL)
    records = Records(SMALL)
    first, second, *_ = batches(SMALL, records.left())
    now = iter((0.0, 10.0, 20.0))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(now)))
    progress = module.Progress(records)
    each = start_seconds("nccl")
    workers = len(batches(SMALL, records.left()))
    assert progress.total == usual_seconds(SMALL, records.left()) + each * workers
    progress.began(first)
    progress.total, progress._start = 100.0, 20.0  # noqa: SLF001
    progress.measured(25.0 - each)
    progress.began(second)
    progress._done = 0.1  # noqa: SLF001
    progress.began(second)
    begin = f"repeat 1, {module.describe(first.configuration)}, worker 1 of {workers}"
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == begin
    assert lines[1].endswith(f"worker 2 of {workers}, 30 s left")
    assert lines[2].endswith(f"worker 3 of {workers}, 333 min left")


@pytest.mark.parametrize(
    ("configuration", "text"),
    [
        (Configuration(2), "2 ranks auto"),
        (Configuration(4, "Ring"), "4 ranks Ring"),
        (Configuration(4, "Ring", "LL", registered=True, settings=(("NCCL_A", "1"),)),
         "4 ranks Ring LL registered NCCL_A=1"),
    ],
)  # fmt: skip
def test_a_configuration_in_a_few_words(configuration: Configuration, text: str) -> None:
    assert module.describe(configuration) == text


@pytest.mark.parametrize("terminal", [False, True])
def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:  # noqa: FBT001
    shown = io.StringIO()
    shown.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=shown))
    records = Records(SMALL)
    (batch, *_) = batches(SMALL, records.left())
    with private("shown_progress")(records) as progress:
        assert isinstance(progress, module.ProgressBar) is terminal
        progress.began(batch)
        progress.measured(progress.total)
    assert ("100%" in shown.getvalue()) is terminal


@pytest.mark.parametrize(
    ("other", "refusal", "given", "shown"),
    [(None, None, True, ""), ("another probe", None, False, "locked"), (None, "busy", False, "busy")],
)
def test_gpus_are_had_while_the_lock_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], other: Any, refusal: Any, shown: str,
    *, given: bool,
) -> None:  # fmt: skip
    done: list[Any] = []

    @contextmanager
    def lock() -> Iterator[Any]:
        yield other
        done.append("unlocked")

    hardware = SimpleNamespace(probe=SimpleNamespace(lock=lock), clock=SimpleNamespace(now=lambda: 0.0))
    nvml = SimpleNamespace(stop=lambda: done.append("stopped"))
    order = Refusal(SkipReason.BUSY, refusal) if refusal else "order"
    monkeypatch.setattr(module, "remove_left_folders", lambda: done.append("removed"))
    monkeypatch.setattr(module, "live", lambda _, state: (hardware, nvml))  # noqa: ARG005
    monkeypatch.setattr(module, "own_state", lambda _: None)
    wanted: list[Any] = []
    answer = SimpleNamespace(order=order, facts="facts")
    monkeypatch.setattr(module, "prepare", lambda _, asked, __: noted(wanted, asked, answer))
    options = SweepOptions("", ranks=(2, 4))
    with private("permitted")(Config(), options, "slurm:7") as allowed:
        assert (allowed is not None) is given
        assert done == ["removed"]
    assert done == ["removed", "unlocked", "stopped"]
    assert shown in capsys.readouterr().out
    (asked,) = wanted
    assert (asked.options.engine, asked.options.ranks, asked.owner) == (Config().probe.engine, 4, "slurm:7")


def test_without_a_state_folder_no_lock_is_respected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    state = own_state(Config())
    assert state is not None
    assert state.directory == tmp_path / "state"
    (tmp_path / "file").touch()
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "file"))
    assert own_state(Config()) is None
    assert "no lock is respected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wish", "other", "outcome", "how"),
    [
        ("wish", "", "ok", "complete"),
        (None, "", "ok", "complete"),
        (None, "another driver", "ok", None),
        ("wish", "another driver", "ok", "complete"),
        ("wish", "", "preempted", "gave_way"),
        ("wish", "", "failed", "failed"),
    ],
)
def test_a_first_worker_shows_what_is_here(
    monkeypatch: pytest.MonkeyPatch, wish: Any, other: str, outcome: str, how: str | None
) -> None:
    begun: list[Any] = []
    file: Any = SimpleNamespace(begin=begun.append, records=SimpleNamespace(header=SMALL))
    wished = Wish(OPTIONS, 1) if wish else None
    scouts: list[Any] = []
    scouted = SimpleNamespace(outcome=outcome, why="so it is")
    monkeypatch.setattr(module, "scout", lambda *given: noted(scouts, given[2], scouted))
    monkeypatch.setattr(module, "environment", lambda *_: {"driver": "580"})
    monkeypatch.setattr(module, "_header", lambda *given: given[-1])
    monkeypatch.setattr(module, "differences", lambda *_: other)
    monkeypatch.setattr(
        module, "_shown_progress", lambda _: nullcontext(SimpleNamespace(began=0, measured=0))
    )
    monkeypatch.setattr(module, "SweepRun", lambda *_: SimpleNamespace(run=lambda: SweepEnd("complete")))
    monkeypatch.setattr(module, "replace", lambda order, **_: order)
    allowed = module.Allowed("hardware", "order", "facts")  # type: ignore[arg-type]
    if how is None:
        with pytest.raises(click.UsageError, match="would mix with what is here: another driver"):
            private("run")(Config(), allowed, file, wished)
        return
    end = private("run")(Config(), allowed, file, wished)
    assert (end.how, end.why) == (how, "" if how == "complete" else "so it is")
    assert (scouts, begun) == (
        [OPTIONS if wish else SMALL.options],
        [wished] if wish and how == "complete" else [],
    )


def test_nothing_that_exists_is_no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    order = SimpleNamespace(plan=SimpleNamespace(engine="nccl"))
    clock = SimpleNamespace(now=lambda: 7.0)
    allowed = SimpleNamespace(order=order, facts=None, hardware=SimpleNamespace(clock=clock))
    monkeypatch.setattr(module, "capabilities", lambda *_: Capabilities("nccl", 1, 1 << 20))
    wish = Wish(SweepOptions("", sizes=(64,)), 5)
    with pytest.raises(click.UsageError, match="nothing of that exists here: 1 GPU: it has nothing"):
        private("header")(Config(), allowed, None, {}, wish)
    monkeypatch.setattr(module, "capabilities", lambda *_: Capabilities("nccl", 2, 1 << 20))
    monkeypatch.setattr(module, "_known", lambda *_: iter(("known",)))
    made = private("header")(Config(), allowed, None, {"driver": "580"}, wish)
    assert (made.options.engine, made.seed, made.known, made.environment) == (
        "nccl",
        5,
        ("known",),
        {"driver": "580"},
    )


@pytest.mark.parametrize(
    ("gpus", "scene", "multicast", "known"),
    [
        ((), SimpleNamespace(conditions=[Wires("a")]), True, 0),
        (("g0", "g1"), SimpleNamespace(conditions=[Wires("a")]), True, 1),
        (("g0", "g1"), SimpleNamespace(conditions=[Wires("a")]), None, 1),
        (("g0", "g1"), SimpleNamespace(conditions=[Wires("a"), Wires("b")]), True, 0),
        (("g0", "g1"), Absent(Why.DENIED, "no"), True, 0),
    ],
)
def test_what_wires_should_give_is_known_of_gpus_that_are_alike(
    monkeypatch: pytest.MonkeyPatch,
    gpus: tuple[str, ...],
    scene: Any,
    multicast: bool | None,  # noqa: FBT001
    known: int,
) -> None:
    order = SimpleNamespace(gpus=gpus, settings=None)
    monkeypatch.setattr(module, "read_scene", lambda *_: scene)
    monkeypatch.setattr(
        module, "known_rates", lambda conditions, op, sizes: (conditions.multicast, op, sizes)
    )
    can = Capabilities("nccl", 2, 1 << 20, multicast=multicast)
    allowed = SimpleNamespace(order=order, hardware=None)
    curves = (CURVES[0], CURVES[0])
    found = list(private("known")(Config(), allowed, can, curves))
    assert (
        found == [(NOT_KNOWN if multicast is None else multicast, CURVES[0].op, set(CURVES[0].sizes))] * known
    )
