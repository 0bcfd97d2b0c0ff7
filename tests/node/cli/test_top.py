"""`wirewatch top`: its lines, its terminal of 80 by 24 as text, and the command with and without a daemon."""

import asyncio
import html
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from textual.pilot import Pilot

from tests.node.cli.terminal import in_terminal
from tests.node.cli.topnodes import collector, finding, snapshot
from tests.node.daemon.process import FAST, Daemon
from tests.node.jobs.explain.drawn import NOW, evidence, gpu_uuid, job, late, row, slow
from tests.processes import run_wirewatch
from wirewatch.cli.jobs import top as module
from wirewatch.cli.jobs.topapp import TopApp
from wirewatch.cli.jobs.topview import SORTS, LinkRates, view
from wirewatch.core.words import utc
from wirewatch.documents.status import NodeSnapshot

OK, UNKNOWN, USAGE = 0, 3, 64
WIDTH, TALL = 80, 24
_TEXT = re.compile(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]* clip-path="[^"]*">([^<]*)</text>')


def texts(
    shot: NodeSnapshot, rates: LinkRates | None = None, width: int = WIDTH, sort: str = SORTS[0]
) -> list[str]:
    return [line.text for line in view(shot, rates or LinkRates(), width, sort).lines]


def words(lines: Sequence[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


# --- lines


def test_gpus_jobs_and_findings_of_a_node() -> None:
    shot = snapshot(evidence(job(late=late(), waiting=0.12)), findings=[finding(2)])
    lines = words(texts(shot))
    assert lines[0] == "wirewatch: FAILED, no job may start; 1 job, 1 finding"
    assert lines[3] == "1 99% 601W 40C 18/18 - - 330.0 12% slurm:4711"
    assert lines[4] == "2 98% 602W 40C 18/18 - - 330.0 12% 1 slurm:4711"
    assert "slurm:4711 4 all_reduce of 256 MiB 330.0 340.0 12% late rank" in lines
    assert any(line.startswith("Collectives: 3 of 4 ranks wait for rank 2 on GPU 2") for line in lines)
    assert lines[-1] == "FAILED nvlink.link_down GPU 2 link 7: inactive; 17 of 18 links up"


@pytest.mark.parametrize("width", [60, 80, 132, 1])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    name = "pod:0f8fad5b-d9cb-469f-a165-70867728950e"
    long = replace(evidence(job(wire=slow(25e9, "NCCL_P2P_DISABLE=1: x"), share=0.9)), name=name)
    lines = texts(snapshot(long, long, findings=[finding(2, text="evidence " * 40)]), width=width)
    assert max(map(len, lines)) <= max(width, 60)
    assert any(line.endswith("…") for line in lines)


def test_texts_from_jobs_cannot_command_the_terminal() -> None:
    evil = replace(evidence(job()), name="pod:\x1b[2J\nx")
    lines = texts(snapshot(evil, findings=[finding(1, text="\x1b]0;x\x07")]))
    assert all(line.isprintable() for line in lines)


def test_rates_are_between_polls_of_the_counters() -> None:
    first, again, later = (snapshot(at=NOW + s, sent=g * 1e9) for s, g in ((0, 0), (0, 0), (10, 700)))
    rates = LinkRates().after(first.state)
    assert rates.rates == {}
    rates = rates.after(again.state).after(later.state)
    assert rates.rates[gpu_uuid(2)] == pytest.approx((140e9, 140e9))
    held = rates.after(later.state)
    assert held == rates
    reset = rates.after(snapshot(at=NOW + 20, sent=1e9).state)
    assert gpu_uuid(2) not in reset.rates
    gone = replace(later.state, collectors=[collector("nvlink", NOW + 30, success=False)])
    assert rates.after(gone) == LinkRates()


def test_a_moment_of_a_recording_counts_once_however_often_it_is_read() -> None:
    """Of moments 5 s apart: else 0 GB/s between two polls of one, and then 2.5 times as much as there is."""
    rates = LinkRates()
    for at, moment in ((0, 0), (2, 0), (4, 0), (6, 5)):
        shot = snapshot(at=NOW + at, sent=moment * 100e9)
        rates = rates.after(replace(shot.state, source="replay"))
        assert (gpu_uuid(1) in rates.rates) == (moment == 5)
    assert rates.rates[gpu_uuid(1)] == pytest.approx((500e9 / 6, 500e9 / 6))


@pytest.mark.parametrize(
    ("sort", "first"),
    [("gpu", "0"), ("utilisation", "0"), ("nvlink", "7"), ("waiting", "0"), ("findings", "5")],
)  # fmt: skip
def test_gpus_are_sorted(sort: str, first: str) -> None:
    rates = LinkRates().after(snapshot(at=NOW).state).after(snapshot(at=NOW + 1, sent=1e9).state)
    shot = snapshot(evidence(job(waiting=0.2)), findings=[finding(3, "degraded"), finding(5)])
    lines = texts(shot, rates, sort=sort)
    assert lines[2].split()[0] == first


def test_what_is_not_known_is_a_dash_and_no_zero() -> None:
    shot = snapshot(evidence(job(row(150e9)), missing=[]), gpus=1)
    empty = replace(shot, state=replace(shot.state, collectors=[]))
    assert "no GPU has been read" in texts(empty)
    assert words(texts(snapshot(gpus=1)))[2] == "0 100% 600W 40C 18/18 - - - -"
    assert "no job is seen on these GPUs" in texts(snapshot())


# --- the terminal


def screen(app: TopApp) -> list[str]:
    """The screen as lines of text, by what textual exports."""
    rows: dict[float, dict[float, str]] = {}
    for x, y, text in _TEXT.findall(app.export_screenshot()):
        rows.setdefault(float(y), {})[float(x)] = html.unescape(text).replace("\xa0", " ")
    return ["".join(rows[y][x] for x in sorted(rows[y])).rstrip() for y in sorted(rows)]


def piloted(app: TopApp, play: Callable[[Pilot[None]], Awaitable[None]]) -> None:
    async def run() -> None:
        async with app.run_test(size=(WIDTH, TALL)) as pilot:
            await pilot.pause()
            await play(pilot)

    asyncio.run(run())


def full() -> NodeSnapshot:
    return snapshot(evidence(job(late=late(), waiting=0.12)), findings=[finding(2), finding(4, "degraded")])


def test_eight_gpus_a_job_and_findings_fit_into_80_by_24() -> None:
    app = TopApp(full, full(), 60.0)

    async def play(_pilot: Pilot[None]) -> None:
        shown = screen(app)
        assert len(shown) <= TALL
        assert max(map(len, shown)) <= WIDTH
        flat = words(shown)
        assert any("wirewatch: FAILED, no job may start; 1 job, 2 findings" in line for line in flat)
        for number in range(8):
            assert any(re.match(rf"{number} \d+% 60{number}W", line) for line in flat)
        assert any("late rank" in line for line in flat)
        assert any(line.startswith("Collectives: 3 of 4 ranks") for line in flat)
        assert any(line.startswith("DEGRADED nvlink.link_down GPU 4") for line in flat)
        assert "q end" in flat[-1]
        assert flat[-2] == f"{utc(NOW)} sorted by gpu"

    piloted(app, play)


def test_keys_sort_pause_and_end() -> None:
    app = TopApp(full, full(), 60.0)

    async def play(pilot: Pilot[None]) -> None:
        for name in (*SORTS[1:], SORTS[0]):
            await pilot.press("s")
            await pilot.pause()
            assert any(f"sorted by {name}" in line for line in screen(app))
        await pilot.press("p")
        await pilot.pause()
        assert any("PAUSED" in line for line in screen(app))
        await pilot.press("p")
        await pilot.pause()
        assert not any("PAUSED" in line for line in screen(app))
        await pilot.press("q")

    piloted(app, play)
    assert app.return_code == 0
    # A look that ends after the screen was taken away.
    app._seen(full())  # noqa: SLF001


def test_lines_are_as_wide_as_the_terminal_becomes() -> None:
    app = TopApp(full, snapshot(findings=[finding(2, text="evidence " * 40)]), 60.0)

    async def play(pilot: Pilot[None]) -> None:
        await pilot.resize_terminal(132, TALL)
        await pilot.pause()
        assert max(len(line) for line in screen(app) if "evidence" in line) > 120

    piloted(app, play)


def test_it_looks_again_and_says_when_nobody_answers() -> None:
    answers: list[NodeSnapshot | str] = [snapshot(at=NOW + 60), "w.sock: nothing listens there"]
    app = TopApp(lambda: answers.pop(0) if len(answers) > 1 else answers[0], full(), 0.05)

    async def play(pilot: Pilot[None]) -> None:
        for _ in range(200):
            await pilot.pause(0.05)
            if any("nothing listens" in line for line in screen(app)):
                break
        shown = screen(app)
        assert any("no answer: w.sock: nothing listens there; as of" in line for line in shown)
        assert any("wirewatch: OK" in line for line in shown)

    piloted(app, play)


# --- the command


def test_without_a_terminal_a_recording_is_printed_once() -> None:
    done = run_wirewatch("top", "--replay", "h200x4-traffic")
    assert (done.returncode, done.stderr) == (OK, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= WIDTH
    # Between its moments: peer copies in a ring, by links of 450 GB/s.
    assert re.match(r"0 98% 264W 42C 18/18 377\.7 377\.7 - -", words(lines)[2])


def test_the_daemon_s_node_is_printed_once(tmp_path: Path) -> None:
    path = f"{tmp_path}/w.sock"
    config = FAST.replace('socket = ""', f'socket = "{path}"') + "[probe]\nenabled = false\n"
    with Daemon(("--replay", "h200x4-idle", "--overlay", "gpu-busy"), tmp_path, config) as running:
        running.ready()
        done = run_wirewatch("top", "--socket", path)
    assert (done.returncode, done.stderr) == (OK, "")
    assert "pid:4711" in done.stdout
    gone = run_wirewatch("top", "--socket", path)
    assert (gone.returncode, gone.stdout) == (UNKNOWN, "")
    assert len(gone.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--overlay", "gpu-busy"), "give --replay too"),
        (("--replay", "h200x4-idle", "--socket", "x"), "either --replay or --socket"),
        (("--every", "0.1s", "--replay", "h200x4-idle"), "--every: '0.1s' is not a duration of 0.5s or more"),
    ],
)
def test_options_that_do_not_go_together(arguments: Sequence[str], said: str) -> None:
    done = run_wirewatch("top", *arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    (line,) = done.stderr.splitlines()
    assert said in line


class Terminal:
    """A `top` of which is noted what it does instead of showing it."""

    def __init__(self, patch: pytest.MonkeyPatch, *, terminal: bool, textual: bool = True) -> None:
        self.notes: list[Any] = []
        shot, notes = full(), self.notes

        class App:
            def __init__(self, look: object, first: object, every: float) -> None:
                notes.append((look() if callable(look) else None, first is shot, every))

            def run(self) -> None:
                notes.append("ran")

        patch.setattr(module, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: terminal)))
        patch.setattr(module, "find_spec", lambda _: textual or None)
        patch.setattr(module, "played_once", lambda source: f"played {source.film}")
        patch.setattr(module, "filmed", lambda source, _: lambda: shot if source.film else "no film")
        patch.setattr(module, "asking", lambda socket, _: lambda: "no answer" if socket == "gone" else shot)
        patch.setattr("wirewatch.cli.jobs.topapp.TopApp", App)

    def run(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(module.top, words)
        return done.exit_code, done.output


@pytest.mark.parametrize(
    ("given", "terminal", "code", "text"),
    [
        (("--overlay", "gpu-busy"), False, 2, "give --replay too"),
        (("--replay", "r", "--socket", "s"), False, 2, "either --replay or --socket"),
        (("--replay", "r", "--overlay", "gpu-busy"), False, 0, "played False"),
        (("--replay", "r", "--once"), True, 0, "played False"),
        (("--once",), True, 0, "wirewatch: FAILED, no job may start"),
        (("--socket", "s"), False, 0, "wirewatch: FAILED, no job may start"),
        (("--socket", "gone"), False, UNKNOWN, "wirewatch: no answer"),
        (("--socket", "gone"), True, UNKNOWN, "wirewatch: no answer"),
    ],
)
def test_what_is_printed_once(
    monkeypatch: pytest.MonkeyPatch,
    given: Sequence[str],
    terminal: bool,  # noqa: FBT001
    code: int,
    text: str,
) -> None:
    one = Terminal(monkeypatch, terminal=terminal)
    ended, out = one.run(*given)
    assert (ended, text in out, one.notes) == (code, True, [])


@pytest.mark.parametrize("given", [(), ("--replay", "r")])
def test_a_terminal_shows_it_live(monkeypatch: pytest.MonkeyPatch, given: Sequence[str]) -> None:
    one = Terminal(monkeypatch, terminal=True)
    assert one.run(*given, "--every", "3s") == (0, "")
    shown, ran = one.notes
    assert (shown[1:], ran) == ((True, 3.0), "ran")
    without = Terminal(monkeypatch, terminal=True, textual=False)
    code, out = without.run(*given)
    assert (code, "pip install 'wirewatch[top]'" in out) == (2, True)
    assert without.run(*given, "--once")[0] == 0


@pytest.mark.parametrize("wrong", ["state", "findings", "jobs", ""])
def test_a_node_is_known_by_all_three_documents(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    asked: list[str] = []

    def answer(_path: str, target: str, _adapter: object) -> object:
        asked.append(target.rpartition("/")[2])
        return f"no {asked[-1]}" if asked[-1] == wrong else asked[-1:]

    monkeypatch.setattr("wirewatch.cli.orders.document_or_reason", answer)
    found = module.asked("/s")
    assert found == (f"no {wrong}" if wrong else NodeSnapshot(["state"], ["findings"], ["jobs"]))  # type: ignore[arg-type]
    assert asked == ["state", "findings", "jobs"][: len(asked)]


def test_a_film_is_looked_at_again_and_ends_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    class Node:
        def __init__(self, source: object, *, keep: bool) -> None:
            done.append((source, keep))

        def poll(self) -> "Node":
            return self

        def run(self, end: float) -> None:
            done.append(type(end))

        def snapshot(self) -> str:
            return "shot"

        def stop(self) -> None:
            done.append("stopped")

    monkeypatch.setattr("wirewatch.cli.check.polling.CheckedNode", Node)
    with ExitStack() as stack:
        look = module.filmed("source", stack)  # type: ignore[arg-type]
        assert [look(), look()] == ["shot", "shot"]
    assert done == [("source", False), float, float, "stopped"]


def test_a_paused_view_takes_no_new_snapshot() -> None:
    app = TopApp(lambda: snapshot(at=NOW + 60), full(), 0.01)

    async def play(pilot: Pilot[None]) -> None:
        await pilot.press("p")
        for _ in range(10):
            await pilot.pause(0.01)
        app._seen(snapshot(at=NOW + 90))  # noqa: SLF001
        assert any("PAUSED" in line for line in screen(app))
        assert app._snapshot.state.at < NOW + 90  # noqa: SLF001

    piloted(app, play)


RUN = "import sys; from wirewatch.cli import run; sys.exit(run(['top', '--replay', 'h200x4-idle']))"


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_in_a_terminal_it_is_live_and_q_ends_it(variables: Mapping[str, str]) -> None:
    code, out = in_terminal(RUN, b"q", **variables)
    assert code == OK
    assert b"18/18" in out
    coloured = re.search(rb"\x1b\[[\d;]*3[1-6]", out) is not None or b"38;" in out
    assert not (variables and coloured)


def test_without_textual_one_line_says_what_to_install() -> None:
    hidden = f"import sys; sys.modules['textual'] = None; {RUN.partition('; ')[2]}"
    code, out = in_terminal(hidden.replace("from wirewatch", "import sys; from wirewatch", 1), b"")
    assert code == USAGE
    assert b"pip install 'wirewatch[top]'" in out
    assert out.count(b"\n") == 1
