"""Each line of `wirewatch status`: what is known, what is not, and what is not as it should be."""

import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.node.cli.checks import noted
from tests.rows import each
from wirewatch.cli import status as module
from wirewatch.cli.check import polling
from wirewatch.cli.check.daemon import WrongAnswer
from wirewatch.cli.orders import ANOTHER_VERSION
from wirewatch.cli.status import StatusLine
from wirewatch.core.types import Unusable
from wirewatch.documents.health import NicStatus, StatusJob


def line(name: str, *values: Any) -> Any:
    found = vars(module)[f"_{name}"](*values)
    return (found.text, found.tone) if isinstance(found, StatusLine) else [(o.text, o.tone) for o in found]


def gpu(number: int = 0, **changes: Any) -> Any:
    known = {
        "gpu": str(number),
        "celsius": 40.0,
        "watts": 100.0,
        "utilisation": 0.5,
        "links": 18,
        "links_expected": 18,
        "pcie_generation": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
    }
    return SimpleNamespace(**{**known, **changes})


@each(
    ("gpus", "product", "driver", "text"),
    [
        ([], "", "", ("none has been read", "unknown")),
        ([gpu()], "H200", "570", ("1 H200; driver 570; 40 C, 100 W, 50 % busy", "")),
        (
            [gpu(), gpu(1, celsius=50.0)],
            "",
            "",
            ("2 of a product that is not known; driver not known; 40 to 50 C, 100 W, 50 % busy", ""),
        ),
        ([gpu(celsius=None, utilisation=None)], "H200", "570", ("1 H200; driver 570; 100 W", "")),
        ([gpu(utilisation=0.0)], "H200", "570", ("1 H200; driver 570; 40 C, 100 W, 0 % busy", "")),
    ],
)
def test_the_gpus(gpus: Any, product: str, driver: str, text: Any) -> None:
    assert line("gpus", SimpleNamespace(gpus=gpus, product=product, driver=driver)) == text


@each(
    ("gpus", "text"),
    [
        ([], ("not known", "quiet")),
        ([gpu(links=None)], ("none", "quiet")),
        ([gpu(), gpu(1)], ("36 of 36 links up", "")),
        ([gpu(), gpu(1, links=17)], ("35 of 36 links up; GPU 1 has 17 of 18", "degraded")),
        ([gpu(), gpu(1, links=None)], ("18 of 18 links up; 1 not read", "degraded")),
        ([gpu(links=6, links_expected=None)], ("6 of 6 links up", "")),
        ([gpu(links=0)], ("0 of 18 links up; GPU 0 has 0 of 18", "degraded")),
    ],
)
def test_the_links(gpus: Any, text: Any) -> None:
    assert line("links", gpus) == text


@each(
    ("gpus", "text"),
    [
        ([], ("not known", "quiet")),
        ([gpu(pcie_width=None)], ("not known", "quiet")),
        ([gpu(pcie_generation=None)], ("not known", "quiet")),
        ([gpu(), gpu(1)], ("generation 5 x16", "")),
        (
            [gpu(), gpu(1, pcie_generation=1), gpu(2)],
            ("2 with generation 5 x16, 1 with generation 1 x16", ""),
        ),
        ([gpu(pcie_width=8)], ("generation 5 x8; GPU 0 could have x16", "degraded")),
        ([gpu(pcie_width=8, pcie_width_max=None)], ("generation 5 x8", "")),
        ([gpu(), gpu(1, pcie_width=None)], ("generation 5 x16; 1 not read", "degraded")),
    ],
)
def test_pcie(gpus: Any, text: Any) -> None:
    assert line("pcie", gpus) == text


def port(**changes: Any) -> Any:
    known = {
        "device": "mlx5_0",
        "port": 1,
        "state": "active",
        "bytes_per_second": 5e10,
        "expected_bytes_per_second": 5e10,
    }
    return SimpleNamespace(**{**known, **changes})


@each(
    ("ports", "text"),
    [
        ([], ("no RDMA port", "quiet")),
        ([port()], ("1 of 1 active: 400 Gb/s", "")),
        ([port(), port(state="down")], ("1 of 2 active: 400 Gb/s; mlx5_0 port 1 is down", "degraded")),
        ([port(state="down")], ("none active; mlx5_0 port 1 is down", "degraded")),
        (
            [port(bytes_per_second=2.5e10)],
            ("1 of 1 active: 200 Gb/s; mlx5_0 port 1 has 200 of 400 Gb/s", "degraded"),
        ),
        (
            [port(bytes_per_second=None)],
            ("1 of 1 active: 0 Gb/s; mlx5_0 port 1 has 0 of 400 Gb/s", "degraded"),
        ),
        ([port(bytes_per_second=2.5e10, expected_bytes_per_second=None)], ("1 of 1 active: 200 Gb/s", "")),
        ([port(bytes_per_second=2.5e10, state="down")], ("none active; mlx5_0 port 1 is down", "degraded")),
    ],
)
def test_the_ports(ports: Any, text: Any) -> None:
    assert line("ports", ports) == text


def nic(device: str, measured: float | None, port: str = "1", **rates: float) -> NicStatus:
    return NicStatus(device, port, measured, rates)


@each(
    ("nics", "text"),
    [
        ([], ("none to probe alone: the daemon's log says why", "quiet")),
        ([nic("mlx5_0", None), nic("mlx5_1", None)], ("none measured alone yet", "unknown")),
        (
            [nic("mlx5_0", 40.0, on=48e9, off=20e9), nic("mlx5_1", 90.0, on=47e9)],
            ("2 of 2 measured alone, the oldest 1 min ago: 20 to 48 GB/s each way", ""),
        ),
        (
            [nic("mlx5_0", 40.0), nic("mlx5_1", None), nic("eth1", None, "")],
            (
                "1 of 3 measured alone, the oldest 1 min ago: too old to count; mlx5_1 port 1, eth1 never",
                "degraded",
            ),
        ),
    ],
)
def test_the_nics_that_are_probed_alone(nics: Any, text: Any) -> None:
    assert line("nics", nics, 100.0) == text


def test_checks_of_gpudirect() -> None:
    assert line("gpudirect", {"a": "passed"}) == ("1 of 1 checks passed", "")
    assert line("gpudirect", {"a": "passed", "b": "failed"}) == ("1 of 2 checks passed; b failed", "degraded")


@pytest.mark.parametrize(
    ("expected", "ratio", "text"),
    [
        (480e9, 0.9, "90 % of 480.0 expected"),
        (None, 0.9, "nothing is expected here"),
        (480e9, None, "nothing is expected here"),
    ],
)
def test_the_headline_of_a_probe(expected: Any, ratio: Any, text: str) -> None:
    probe = SimpleNamespace(
        op="all_reduce",
        size_bytes=1 << 20,
        busbw=432e9,
        expected_busbw=expected,
        ratio=ratio,
        age_seconds=60.0,
    )
    told = vars(module)["_headline"](probe)
    assert told.startswith("all_reduce of 1")
    assert text in told
    assert told.endswith(" ago")


def test_the_probe_and_its_gate() -> None:
    collectors = [SimpleNamespace(collector="probe")]
    shut = SimpleNamespace(open=False, detail="a job runs", reason="busy", holds=[])
    about = SimpleNamespace(probe=None, gate=shut, collectors=collectors)
    assert line("probe", about) == [("none yet", ""), ("none now: a job runs", "quiet")]
    about.gate = SimpleNamespace(open=True, holds=["slurm:7", "slurm:8"])
    assert line("probe", about) == [("none yet", ""), ("held off by slurm:7, slurm:8", "quiet")]
    about.gate.holds = [f"slurm:{n}" for n in range(256)]
    assert line("probe", about)[1][0] == "held off by slurm:0, slurm:1, slurm:2 and 253 more"
    about.collectors = []
    assert line("probe", about) == [("switched off", "quiet")]


def test_the_jobs() -> None:
    job = StatusJob("train", 8, "late rank", "3 wait.", {"computing": 0.88, "waiting": 0.12, "idle": 0.0})
    bare = StatusJob("lone", 1, "host")
    assert line("jobs", SimpleNamespace(jobs=[])) == [("none seen", "quiet")]
    first = [("train on 8 GPUs (late rank): 3 wait.", ""), ("88 % computing, 12 % waiting", "quiet")]
    assert line("jobs", SimpleNamespace(jobs=[job, bare])) == [*first, ("lone on 1 GPU (host)", "")]
    assert line("jobs", SimpleNamespace(jobs=[bare] * 7))[-1] == ("2 more: `wirewatch top`", "")


def test_how_old_each_reading_is_and_what_is_not_read() -> None:
    def one(name: str, age: float | None, error: str = "") -> Any:
        return SimpleNamespace(collector=name, age_seconds=age, error=error)

    about = SimpleNamespace(
        collectors=[one("b", 60.0), one("a", 1.0), one("c", 60.0, "denied"), one("d", None, "denied")]
    )
    first, *others = line("read", about)
    assert first[0].startswith("a 1 s ago; b, c ")
    assert others == [("not read now: c, d: denied", "unknown")]
    assert line("read", SimpleNamespace(collectors=[one("a", None)])) == [("nothing yet", "unknown")]


def finding(stage: str = "live", health: str = "failed") -> Any:
    return SimpleNamespace(stage=stage, health=health, rule="r", subject={"gpu": "2"}, evidence="e")


def test_findings_are_five_and_the_others_are_counted() -> None:
    def told(*found: Any) -> Any:
        return line("findings", SimpleNamespace(findings=list(found)))

    assert told() == [("none", "quiet")]
    assert [tone for _, tone in told(finding(), finding("repaired"), finding("suppressed"))] == [
        "failed",
        "quiet",
        "quiet",
    ]
    assert told(finding())[0][0] == "FAILED r GPU 2: e"
    assert told(finding("latched"))[0] == ("FAILED r GPU 2 (latched): e", "failed")
    assert len(told(*[finding()] * 5)) == 5
    assert told(*[finding()] * 6)[5:] == [("1 more: `wirewatch findings list`", "")]


def document(**changes: Any) -> Any:
    """A node of which nothing is known."""
    known = {
        "health": "ok", "job_ready": True, "why": "", "gpus": [], "product": "", "driver": "", "ports": [],
        "paths": [], "gpudirect": {}, "probe": None, "gate": SimpleNamespace(open=True), "collectors": [],
        "jobs": [], "by": "own", "source": "replay", "findings": [], "host": "",
    }  # fmt: skip
    return SimpleNamespace(**{**known, **changes})


@each(
    ("changes", "line", "there"),
    [
        ({}, ("OK", "a job may start", "ok"), True),
        ({"health": "failed", "job_ready": False}, ("FAILED", "no job may start", "failed"), True),
        ({"host": "gpu-17"}, ("OK", "a job may start; on gpu-17", "ok"), True),
        ({}, ("", "", "quiet"), False),
        ({"why": "read once"}, ("", "read once", "quiet"), True),
        ({}, ("paths", "GPU to its nearest NIC: ", ""), False),
        ({"paths": [SimpleNamespace(path="PIX")]}, ("paths", "GPU to its nearest NIC: PIX", ""), True),
        ({}, ("GPUDirect", "0 of 0 checks passed", ""), False),
        ({"gpudirect": {"a": "passed"}}, ("GPUDirect", "1 of 1 checks passed", ""), True),
        ({}, ("read", "nothing yet", "unknown"), False),
        ({"source": "live"}, ("read", "nothing yet", "unknown"), True),
        ({"by": "daemon"}, ("read", "nothing yet", "unknown"), True),
    ],
)
def test_there_is_a_line_for_what_there_is(changes: Any, line: tuple[str, str, str], there: bool) -> None:  # noqa: FBT001
    """How old values are is said but of a recording that this command plays itself."""
    assert (StatusLine(*line) in list(module.status_lines(document(**changes)))) is there


@pytest.mark.parametrize(
    ("width", "rows"),
    [
        (31, ["findings   aaaaaaaa bbbbbbbb", "           cccccccc"]),
        (40, ["findings   aaaaaaaa bbbbbbbb cccccccc"]),
        (5, ["findings   aaaaaaaa bbbbbbbb", "           cccccccc"]),
    ],
)
def test_a_long_line_goes_on_below_its_text(
    monkeypatch: pytest.MonkeyPatch, width: int, rows: list[str]
) -> None:
    lines = [StatusLine("findings", "aaaaaaaa bbbbbbbb cccccccc"), StatusLine("empty", "")]
    monkeypatch.setattr(module, "status_lines", lambda _: lines)
    assert [row.rstrip() for row in vars(module)["_text"](document(), width)] == [*rows, "empty"]


# --- the command


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("--overlay", "gpu-lost"), "give --replay too"),
        (("--replay", "r", "--socket", "s"), "either --replay or --socket"),
        (("--replay", "r", "--overlay", "gpu-lost"), ""),
        (("--replay", "r"), ""),
        (("--socket", "s"), ""),
        ((), ""),
    ],
)
def test_a_recording_is_played_and_this_node_asked(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], refused: str
) -> None:
    monkeypatch.setattr(polling, "played", lambda source: source)
    monkeypatch.setattr(module, "_of_poll", lambda source, why: document(why=f"{why} {source.overlays}"))
    monkeypatch.setattr(
        module, "_of_this_node", lambda socket, _: document(why=f"asked {socket}", health="failed")
    )
    monkeypatch.setattr(module, "asdict", lambda shown: {"why": shown.why})
    monkeypatch.setattr(module, "_text", lambda shown, _width: [shown.why])
    done = CliRunner().invoke(module.status, words)
    if refused:
        assert (done.exit_code, refused in done.output) == (2, True)
        return
    overlays = tuple(word for word in words if word == "gpu-lost")
    about = ", ".join(("recording r", *(f"overlay {one}" for one in overlays)))
    played, asked = f"{about}, played without waiting {overlays}", f"asked {'s' if words else None}"
    recorded = "--replay" in words
    assert (done.exit_code, done.output) == (0 if recorded else 2, f"{played if recorded else asked}\n")
    as_json = CliRunner().invoke(module.status, (*words, "--json"))
    assert (as_json.exit_code, as_json.output.startswith('{\n "why": ')) == (done.exit_code, True)


@pytest.mark.parametrize(
    ("found", "socket", "driver", "end"),
    [
        ("document", None, True, "document"),
        ("document", "s", True, "document"),
        ("no answer", None, True, "read once by this command, since no daemon answers: no answer"),
        ("no answer", None, False, "`wirewatch demo` shows a node with GPUs"),
    ],
)
def test_a_node_without_a_daemon_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
    found: str,
    socket: str | None,
    driver: bool,  # noqa: FBT001
    end: str,
) -> None:
    answer = document(why="document") if found == "document" else found
    demos: list[bool] = []
    monkeypatch.setattr(module, "asked_socket", lambda *_: "/demo.sock" if socket else "/run/w.sock")
    monkeypatch.setattr(module, "demo_path", lambda: "/demo.sock")
    monkeypatch.setattr(module, "_asked", lambda _path, demo: noted(demos, demo, answer))
    monkeypatch.setattr(module, "driver_is_here", lambda: driver)
    monkeypatch.setattr(module, "_polled", lambda _, why: document(why=why))
    shown = vars(module)["_of_this_node"](socket, None)
    assert (shown.why.endswith(end), demos) == (True, [bool(socket)])


def test_nothing_but_the_socket_that_was_named_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_asked", lambda _path, demo: f"no answer {demo}")
    with pytest.raises(Unusable, match="no answer False"):
        vars(module)["_of_this_node"]("/s", None)


@dataclass(frozen=True)
class Answered:
    by: str = "daemon"


@pytest.mark.parametrize(
    ("body", "demo", "found"),
    [
        ("no daemon", False, "no daemon"), (b"document", False, Answered()),
        (b"document", True, Answered("demo")), (b"x", False, f"/s: {ANOTHER_VERSION}"),
    ],
)  # fmt: skip
def test_the_answer_of_a_daemon(monkeypatch: pytest.MonkeyPatch, body: Any, demo: bool, found: Any) -> None:  # noqa: FBT001
    def read(given: bytes) -> Answered:
        if given != b"document":
            raise WrongAnswer("x")
        return Answered()

    monkeypatch.setattr(module, "body_or_reason", lambda *_: body)
    monkeypatch.setattr(module, "read_status", read)
    assert vars(module)["_asked"]("/s", demo=demo) == found


@pytest.mark.parametrize("hangs", [False, True])
def test_a_node_that_hangs_is_shown_as_far_as_it_is_known(
    monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    done: list[Any] = []
    hold = threading.Event()

    class Node:
        def __init__(self, _source: Any, *, keep: bool) -> None:
            done.append(keep)

        def poll(self) -> Any:
            return self

        def run(self, end: float) -> None:
            done.append(end)
            if hangs:
                hold.wait()

        def stop(self) -> None:
            done.append("stopped")

        def kill(self) -> None:
            done.append("killed")
            hold.set()

    monkeypatch.setattr(polling, "CheckedNode", Node)
    monkeypatch.setattr(module, "_of_poll", lambda _poll, why: why)
    if hangs:
        monkeypatch.setattr(module, "SECONDS", 0.2)
    before = time.monotonic()
    assert vars(module)["_polled"](None, "why") == "why"
    assert (done[0], "killed" in done) == (False, hangs)
    assert before <= done[1] - (0.2 if hangs else 10.0) <= time.monotonic()
