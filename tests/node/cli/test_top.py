"""`wirewatch top`: its lines, its terminal of 80 by 24 as text, and the command with and without a daemon."""

import asyncio
import html
import os
import pwd
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from textual.binding import Binding
from textual.pilot import Pilot

from tests.node.cli.terminal import in_terminal
from tests.node.cli.topnodes import collector, finding, held, people, snapshot
from tests.node.daemon.process import FAST, Daemon
from tests.node.jobs.explain.drawn import NOW, PIDS, evidence, gpu_uuid, job, late, row, slow
from tests.processes import run_wirewatch
from tests.rows import each
from wirewatch.cli.jobs import top as module
from wirewatch.cli.jobs.topapp import TopApp
from wirewatch.cli.jobs.topprocesses import HostProcess, HostProcesses, host_processes
from wirewatch.cli.jobs.topview import ORDERS, SORTS, LinkRates, TopChoice, help_lines, view
from wirewatch.core.types import Absent, Unanswered, Why
from wirewatch.core.words import utc
from wirewatch.documents.status import NodeSnapshot
from wirewatch.hw.files import SystemSysfs

OK, FAILED, USAGE, NO_ANSWER = 0, 2, 64, 69
WIDTH, TALL = 80, 24
_TEXT = re.compile(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]* clip-path="[^"]*">([^<]*)</text>')


def texts(
    shot: NodeSnapshot, rates: LinkRates | None = None, width: int = WIDTH, sort: str = SORTS[0]
) -> list[str]:
    return [line.text for line in view(shot, rates or LinkRates(), width, TopChoice(sort)).lines]


def words(lines: Sequence[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


# --- lines


def test_gpus_jobs_and_findings_of_a_node() -> None:
    shot = snapshot(held(evidence(job(late=late(), waiting=0.12))), findings=[finding(2)])
    lines = words(texts(shot))
    assert lines[0] == "wirewatch: FAILED, no job may start; 1 job, 1 finding"
    assert lines[3] == "1 99% 601W 40C 10.0 18/18 - - 330.0 12% slurm:4711"
    assert lines[4] == "2 98% 602W 40C 20.0 18/18 - - 330.0 12% 1 slurm:4711"
    assert "slurm:4711 4 all_reduce of 256 MiB 330.0 340.0 12% late rank" in lines
    assert any(line.startswith("Collectives: 3 of 4 ranks wait for rank 2 on GPU 2") for line in lines)
    assert lines[-6] == "FAILED nvlink.link_down GPU 2 link 7: inactive; 17 of 18 links up"
    assert lines[-1] == "3 4714 - 30.0 - slurm:4711 -"


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


@each(
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
    assert words(texts(snapshot(gpus=1)))[2] == "0 100% 600W 40C - 18/18 - - - -"
    assert "no job is seen on these GPUs" in texts(snapshot())


# --- processes


def test_processes_have_gpu_user_memory_cpu_job_and_command() -> None:
    shot = snapshot(held(evidence(job())))
    shown = view(shot, LinkRates(), 100, TopChoice(), people(0, 1, 2, 3)).processes
    assert words([line.text for line in shown]) == [
        "GPU PID user GiB CPU job command",
        "0 4711 alice 0.0 0% slurm:4711 python train.py --rank 0",
        "1 4712 bob 10.0 10% slurm:4711 python train.py --rank 1",
        "2 4713 alice 20.0 20% slurm:4711 python train.py --rank 2",
        "3 4714 alice 30.0 30% slurm:4711 python train.py --rank 3",
    ]


@pytest.mark.parametrize(("order", "first"), [("gpu", 4711), ("memory", 4714), ("cpu", 4714), ("user", 4711)])
def test_processes_are_sorted(order: str, first: int) -> None:
    shot = snapshot(held(evidence(job())))
    assert order in ORDERS
    shown = view(shot, LinkRates(), 80, TopChoice(order=order), people(0, 1, 2, 3)).processes
    assert shown[1].text.split()[1] == str(first)
    assert shown[-1].text.split()[2] == ("bob" if order == "user" else "alice")


def test_what_cannot_be_read_is_a_dash_and_says_why() -> None:
    shot = snapshot(evidence(job()))
    why = Absent(Why.DENIED, "hidden")
    host = HostProcesses(people(0, 1).known, {PIDS + 2: why, PIDS + 3: why})
    shown = words([line.text for line in view(shot, LinkRates(), 80, TopChoice(), host).processes])
    assert shown[3] == "2 4713 - - - slurm:4711 -"
    assert shown[-1] == f"2 processes not read here: {why}"


def test_the_memory_of_a_gpu_is_not_given_where_a_process_lacks_its_own() -> None:
    one = held(evidence(job()))
    two = replace(one.gpus[1], pids=(*one.gpus[1].pids, 99))
    lines = words(texts(snapshot(replace(one, gpus=(one.gpus[0], two)))))
    assert lines[3].startswith("1 99% 601W 40C - 18/18")


def test_processes_of_a_recording_are_not_those_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def read(_: object, path: str) -> Absent:
        asked.append(path)
        return Absent(Why.MISSING)

    monkeypatch.setattr("wirewatch.hw.files.SystemSysfs.read", read)
    shot = snapshot(evidence(job()))
    for source in ("replay", "synthetic"):
        played = replace(shot, state=replace(shot.state, source=source))
        assert host_processes(HostProcesses(), played) == HostProcesses()
        assert (
            view(played, LinkRates()).processes[-1].text == "users, CPU and commands are not in a recording"
        )
    assert asked == []
    assert len(host_processes(HostProcesses(), shot).unread) == 4
    assert f"/proc/{PIDS}/stat" in asked


@each(
    ("wanted", "pids", "gpus", "jobs"),
    [
        ("", "4711 4712 4713 4714", "01234567", 1),
        ("alice", "4711 4713 4714", "023", 1),
        ("ALICE rank", "4711 4713 4714", "023", 1),
        ("user=bob", "4712", "1", 1),
        ("user=4712", "", "", 0),
        ("gpu=2", "4713", "2", 1),
        ("2", "4713", "2", 1),
        ("gpu=6", "", "6", 0),
        ("slurm", "4711 4712 4713 4714", "0123", 1),
        ("job=slurm:4711 bob", "4712", "1", 1),
        ("pid=4714", "4714", "3", 1),
        ("pid=471", "", "", 0),
        ("--lr=3", "", "", 0),
        ("nobody", "", "", 0),
    ],
)
def test_a_filter_leaves_rows_that_have_all_of_its_words(
    wanted: str, pids: str, gpus: str, jobs: int
) -> None:
    shot = snapshot(held(evidence(job())))
    shown = view(shot, LinkRates(), 100, TopChoice(wanted=wanted), people(0, 1, 2, 3))
    rows = [line.text.split() for line in shown.processes[1:] if line.tone == "ok"]
    assert " ".join(row[1] for row in rows) == pids
    assert "".join(line.text.split()[0] for line in shown.gpus[1:] if line.tone == "ok") == gpus
    assert sum(line.text.startswith("slurm:4711") for line in shown.jobs) == jobs
    if wanted:
        number = len(pids.split())
        assert shown.processes[-1].text == f"{number} of 4 processes: {wanted}"


def test_a_process_of_this_machine_is_read(tmp_path: Path) -> None:
    mine = os.getpid()
    first = HostProcesses().after(SystemSysfs(), [mine])
    spin = time.process_time() + 0.2
    while time.process_time() < spin:
        pass
    one = first.after(SystemSysfs(), [mine]).known[mine]
    assert first.known[mine].cpu is None
    assert (one.user, (one.cpu or 0.0) > 0) == (pwd.getpwuid(os.getuid()).pw_name, True)
    assert "python" in one.command or "pytest" in one.command
    gone = HostProcesses().after(SystemSysfs(tmp_path), [mine])
    assert (gone.known, list(gone.unread)) == ({}, [mine])


def drawn_process(root: Path, stat: str, status: str = "Uid:\t4242\t0\t0\t0\n", line: bytes = b"") -> Any:
    folder = root / "proc" / "7"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (("stat", stat.encode()), ("status", status.encode()), ("cmdline", line)):
        (folder / name).write_bytes(data)
    return SystemSysfs(root)


def stat_of(began: int, ticks: int, name: str = "a) (b") -> str:
    return f"7 ({name}) R 1 {'0 ' * 9}{ticks} 0 0 0 20 0 1 0 {began} 0"


def test_another_process_under_the_number_has_no_cpu_of_the_one_before(tmp_path: Path) -> None:
    first = HostProcesses().after(drawn_process(tmp_path, stat_of(100, 1000)), [7])
    again = first.after(drawn_process(tmp_path, stat_of(100, 1000)), [7])
    other = first.after(drawn_process(tmp_path, stat_of(200, 9000)), [7])
    assert (again.known[7].cpu, other.known[7].cpu) == (0.0, None)
    assert (again.known[7].began, other.known[7].began) == (100, 200)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"/usr/bin/python3\0train.py\0--lr\0003e-4\0", "python3 train.py --lr 3e-4"),
        (b"", "[a) (b]"),
        (b"\0\0", "[a) (b]"),
        (b"\xff\0", "\ufffd"),
    ],
)
def test_a_command_has_its_program_without_the_folder(tmp_path: Path, line: bytes, command: str) -> None:
    found = HostProcesses().after(drawn_process(tmp_path, stat_of(1, 1), line=line), [7]).known[7]
    assert (found.command, found.user) == (command, "4242")


def test_texts_that_are_no_process_are_no_error(tmp_path: Path) -> None:
    found = HostProcesses().after(drawn_process(tmp_path, "", "Uid:\n", b"x"), [7]).known[7]
    assert (found.user, found.began, found.seconds) == ("", 0, 0.0)


def test_commands_cannot_command_the_terminal() -> None:
    host = HostProcesses({PIDS: HostProcess("a\x1b", "\x1b[2J\n", 0.0, 1, 0.0, 0.0)})
    lines = view(snapshot(evidence(job())), LinkRates(), 80, TopChoice(wanted="\x1b"), host).lines
    assert all(line.text.isprintable() for line in lines)


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
    return snapshot(
        held(evidence(job(late=late(), waiting=0.12))), findings=[finding(2), finding(4, "degraded")]
    )


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
        assert flat[-2] == f"{utc(NOW)} sorted by gpu, gpu"

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
    app._seen(full(), HostProcesses())  # noqa: SLF001


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
    assert re.match(r"0 98% 264W 42C - 18/18 377\.7 377\.7 - -", words(lines)[2])


def test_the_daemon_s_node_is_printed_once(tmp_path: Path) -> None:
    path = f"{tmp_path}/w.sock"
    config = FAST.replace('socket = ""', f'socket = "{path}"') + "[probe]\nenabled = false\n"
    with Daemon(("--replay", "h200x4-idle", "--overlay", "gpu-busy"), tmp_path, config) as running:
        running.ready()
        done = run_wirewatch("top", "--socket", path)
    assert (done.returncode, done.stderr) == (OK, "")
    assert "pid:4711" in done.stdout
    gone = run_wirewatch("top", "--socket", path)
    assert (gone.returncode, gone.stdout) == (NO_ANSWER, "")
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
        patch.setattr(module, "played_once", lambda source: (f"played {source.film}", shot))
        patch.setattr(module, "filmed", lambda source, _: lambda: shot if source.film else "no film")
        patch.setattr(module, "asking", lambda socket, _: lambda: "no answer" if socket == "gone" else shot)
        patch.setattr("wirewatch.cli.jobs.topapp.TopApp", App)

    def run(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(module.top, words)
        if isinstance(done.exception, Unanswered):
            return NO_ANSWER, str(done.exception)
        return done.exit_code, done.output


@pytest.mark.parametrize(
    ("given", "terminal", "code", "text"),
    [
        (("--overlay", "gpu-busy"), False, 2, "give --replay too"),
        (("--replay", "r", "--socket", "s"), False, 2, "either --replay or --socket"),
        (("--replay", "r", "--overlay", "gpu-busy"), False, FAILED, "played False"),
        (("--replay", "r", "--once"), True, FAILED, "played False"),
        (("--once",), True, FAILED, "wirewatch: FAILED, no job may start"),
        (("--socket", "s"), False, FAILED, "wirewatch: FAILED, no job may start"),
        (("--socket", "gone"), False, NO_ANSWER, "no answer"),
        (("--socket", "gone"), True, NO_ANSWER, "no answer"),
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
    assert (code, "pip install 'textual>=8.0'" in out) == (FAILED, True)
    assert without.run(*given, "--once")[0] == FAILED


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
        app._seen(snapshot(at=NOW + 90), HostProcesses())  # noqa: SLF001
        assert any("PAUSED" in line for line in screen(app))
        assert app._snapshot.state.at < NOW + 90  # noqa: SLF001

    piloted(app, play)


def test_keys_order_filter_and_help() -> None:
    app = TopApp(full, full(), 60.0, lambda _, __: people(0, 1, 2, 3))

    async def play(pilot: Pilot[None]) -> None:
        async def seen(text: str) -> bool:
            await pilot.pause()
            return any(text in line for line in screen(app))

        assert await seen("4711 alice")
        for name in (*ORDERS[1:], ORDERS[0]):
            await pilot.press("o")
            assert await seen(f"sorted by gpu, {name}")
        await pilot.press("slash", *"user=bob", "enter")
        assert await seen("filter: user=bob")
        assert await seen("1 of 4 processes: user=bob")
        assert not await seen("4711 alice")
        await pilot.press("f", *"xx", "escape")
        assert await seen("filter: user=bob")
        await pilot.press("escape")
        assert await seen("4711 alice")
        assert not await seen("filter: user")
        for key in ("h", "question_mark"):
            await pilot.press(key)
            assert await seen("any key goes back")
            assert await seen("order the processes: gpu, memory, cpu, user")
            app._seen(full(), people(0))  # noqa: SLF001 - a look that ends meanwhile
            await pilot.press("q")
            assert not await seen("any key goes back")
        await pilot.press("q")

    piloted(app, play)
    assert app.return_code == 0


def test_all_keys_are_in_the_help() -> None:
    text = " ".join(line.text for line in help_lines())
    for binding in TopApp.BINDINGS:
        key = binding.key if isinstance(binding, Binding) else binding[0]
        for one in key.split(","):
            assert {"slash": "/", "question_mark": "?"}.get(one, one) in text


RUN = "import sys; from wirewatch.cli import run; sys.exit(run(['top', '--replay', 'h200x4-idle']))"


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_in_a_terminal_it_is_live_and_q_ends_it(variables: Mapping[str, str]) -> None:
    code, out = in_terminal(RUN, b"q", **variables)
    assert code == OK
    assert b"18/18" in out
    coloured = re.search(rb"\x1b\[[\d;]*3[1-6]", out) is not None or b"38;" in out
    assert not (variables and coloured)


def test_without_textual_it_is_printed_once_and_one_line_says_what_to_install() -> None:
    hidden = f"import sys; sys.modules['textual'] = None; {RUN.partition('; ')[2]}"
    code, out = in_terminal(hidden.replace("from wirewatch", "import sys; from wirewatch", 1), b"")
    assert code == OK
    assert b"pip install 'textual>=8.0'" in out.splitlines()[0]
    assert b"18/18" in out
