"""How the daemon is composed of its command line and configuration, without one that runs."""

import faulthandler
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.node.cli.checks import noted
from tests.support import Node
from wirewatch.catalogue import discover
from wirewatch.cli import serve as module
from wirewatch.cli.serve import (
    ConfigurationFile,
    ServeOptions,
    announce,
    base_url,
    condition_writer,
    serve,
    verdict_file,
)
from wirewatch.config import ConfigError, load
from wirewatch.core.types import Unusable
from wirewatch.daemon.baselines import BaselineStore
from wirewatch.daemon.machine import KeptMachine
from wirewatch.daemon.notify import Reporters
from wirewatch.daemon.release import Handles
from wirewatch.daemon.service import LAST_WRITE
from wirewatch.page.html import OWN
from wirewatch.probe.runner import ProbeRunner
from wirewatch.server.guard import Hosts
from wirewatch.server.sockets import ListenError, control_path
from wirewatch.server.webconfig import Settings
from wirewatch.statefolder import StateFolder, StateInUse, lock_agent, open_state
from wirewatch.verdict.ledger import LOST

GIVEN = ServeOptions(None, None, None, None, (), loop=False)


def test_buffers_of_64_kib_go_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """M_MMAP_THRESHOLD is -3 in <malloc.h>; a C library without mallopt stays as it is."""
    noted: list[tuple[int, ...]] = []
    glibc, other = SimpleNamespace(mallopt=lambda *given: noted.append(given)), SimpleNamespace()
    for library in (glibc, other):
        monkeypatch.setattr(module, "ctypes", SimpleNamespace(CDLL=lambda _, made=library: made))
        vars(module)["_return_large_buffers"]()
    assert noted == [(-3, 65536)]


def config(folder: Path, text: str = "") -> Any:
    file = folder / "wirewatch.toml"
    file.write_text(text, "utf-8")
    return load(file, discover())[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--overlay", "x"), "--overlay changes a recording"),
        (("--loop",), "give --replay too"),
        (("--rings", "/r"), "--rings goes with --replay"),
        (("--listen", "x"), "--listen: 'x' is not HOST:PORT"),
    ],
)
def test_options_that_do_not_go_together(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr(faulthandler, "enable", lambda: None)
    done = CliRunner().invoke(serve, words)
    assert (done.exit_code, said in done.output) == (2, True)


@pytest.mark.parametrize(
    ("words", "driver", "replay", "demo"),
    [
        (("--demo",), False, vars(module)["DEMO"], True),
        (("--demo",), True, None, False),
        ((), False, None, False),
        (("--demo", "--replay", "x"), False, "x", False),
    ],
)
def test_a_demo_is_of_a_recording_where_there_is_no_driver(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], replay: str | None, *, driver: bool, demo: bool
) -> None:
    given: list[ServeOptions] = []
    enabled: list[bool] = []
    monkeypatch.setattr(faulthandler, "enable", lambda: enabled.append(True))
    monkeypatch.setattr(module, "driver_is_here", lambda: driver)
    monkeypatch.setattr(module, "run_serve", lambda options, _reporters: given.append(options))
    assert CliRunner().invoke(serve, (*words, "--listen", "127.0.0.1:1")).exit_code == 0
    (options,) = given
    assert enabled == [True]
    assert (options.replay, options.demo, options.loop, options.rings) == (replay, demo, demo, "")
    more = ("--replay", "x", "--rings", "/r", "--overlay", "o", "--loop")
    assert CliRunner().invoke(serve, more).exit_code == 0
    assert (given[1].overlays, given[1].loop, given[1].rings) == (("o",), True, "/r")


def port(host: str, *more: object) -> Any:
    return SimpleNamespace(getsockname=lambda: (host, 9410, *more))


def web(settings: Settings | None, *, loopback: bool = False) -> Any:
    known = settings or Settings()
    return SimpleNamespace(settings=lambda: known, hosts=Hosts(loopback=loopback), current=settings)


ASKING = Settings(tokens={"a": b"x"})
SECURE: Any = object()


@pytest.mark.parametrize(
    ("guard", "said"),
    [
        (web(None), "anyone who reaches it may read it"),
        (web(None, loopback=True), ""),
        (web(ASKING), "sent unencrypted"),
        (web(ASKING, loopback=True), ""),
        (web(Settings()), ""),
        (web(replace(ASKING, tls=SECURE)), ""),
    ],
)
def test_a_warning_says_who_may_read_it(guard: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    announce(SimpleNamespace(source="live", about="GPUs"), port("10.0.0.7"), guard)  # type: ignore[arg-type]
    warned = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert (len(warned), said in "".join(warned)) == (1 if said else 0, True)


@pytest.mark.parametrize(
    ("host", "tls", "url"),
    [
        ("10.0.0.7", None, "http://10.0.0.7:9410"),
        ("::1", None, "http://[::1]:9410"),
        ("10.0.0.7", SECURE, "https://10.0.0.7:9410"),
        ("::1", SECURE, "https://[::1]:9410"),
    ],
)
def test_where_it_answers(host: str, tls: Any, url: str) -> None:
    assert base_url(port(host, 0, 0), web(Settings(tls=tls))) == url


@pytest.mark.parametrize(
    ("given", "text", "path"),
    [
        (GIVEN, "", "/run/w/wirewatch.sock"),
        (replace(GIVEN, replay="x"), "", ""),
        (replace(GIVEN, socket=""), "[listen]\nsocket = '/c'", ""),
        (replace(GIVEN, socket="/g"), "", "/g"),
        (replace(GIVEN, replay="x"), "[listen]\nsocket = '/c'", "/c"),
        (replace(GIVEN, demo=True, replay="x"), "", "/demo"),
        (replace(GIVEN, demo=True, replay="x"), "[listen]\nsocket = ''", ""),
    ],
)
def test_the_socket_of_local_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: ServeOptions, text: str, path: str
) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/w")
    monkeypatch.setattr(module, "_demo_socket", lambda _: "/demo")
    assert vars(module)["_socket_path"](config(tmp_path, text), given, ExitStack()) == path


def test_where_another_demo_listens_there_is_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken() -> None:
        raise ListenError("taken")

    monkeypatch.setattr(module, "demo_folder", taken)
    assert vars(module)["_demo_socket"](ExitStack()) == ""


@pytest.mark.parametrize(("source", "name"), [("live", "node-7"), ("replay", ""), ("synthetic", "")])
def test_the_page_of_a_recording_names_no_node(tmp_path: Path, source: str, name: str) -> None:
    hardware = SimpleNamespace(source=source, about="GPUs")
    made = vars(module)["_place"](config(tmp_path, "[slurm]\nnode = 'node-7'"), hardware)
    assert (made.node, made.about) == (name, "GPUs")


@pytest.mark.parametrize(("source", "warned"), [("live", False), ("replay", True)])
def test_a_condition_that_comes_of_a_recording_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str, *, warned: bool
) -> None:
    hardware: Any = SimpleNamespace(source=source, about="a recording", clock=Node("h200x8").clock)
    assert condition_writer(config(tmp_path), hardware) is None
    text = "[kubernetes]\nnode_condition = true\nnode = 'n'\napi_server = 'h:1'\n"
    assert condition_writer(config(tmp_path, text), hardware) is not None
    assert ("from a recording" in caplog.text) is warned


def test_the_verdict_has_a_file_where_there_is_a_socket(tmp_path: Path) -> None:
    hardware: Any = SimpleNamespace(source="live", clock=Node("h200x8").clock)
    assert verdict_file("", hardware) is None
    assert verdict_file(str(tmp_path / "w.sock"), hardware) is not None


def test_a_recording_has_no_state_unless_it_is_configured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = vars(module)["_state"]
    with ExitStack() as stack:
        assert made(config(tmp_path), "x", stack) == module.Keeping()
        configured = config(tmp_path, f"[state]\ndirectory = '{tmp_path / 's'}'")
        assert made(configured, "x", stack).state.directory == tmp_path / "s"
        with pytest.raises(StateInUse):
            made(configured, None, stack)
    file = tmp_path / "file"
    file.touch()
    assert made(config(tmp_path, f"[state]\ndirectory = '{file}'"), None, ExitStack()).state is None
    assert "nothing is remembered over a restart" in caplog.text
    lock_agent(StateFolder(tmp_path / "s")).release()


def test_what_was_remembered_of_the_machine_and_is_lost_is_a_finding(tmp_path: Path) -> None:
    node = Node("h200x8")
    made, state = vars(module)["_remembered"], open_state(tmp_path / "s")
    for kept, rules in ((KeptMachine(), set()), (KeptMachine(wrong="broken"), {LOST})):
        found = made(config(tmp_path), node.hardware, state, kept, discover())
        assert {one.rule for one in found.ledger.entries.values()} == rules
        assert found.path == state.latches
    alone = made(config(tmp_path), node.hardware, None, KeptMachine(wrong="broken"), discover())
    assert (alone.path, alone.machine, alone.ledger.entries) == (None, None, {})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", {"drift", "pairs", "probe"}),
        ("[drift]\nenabled = false", {"pairs", "probe"}),
        ("[pairs]\nenabled = false", {"drift", "probe"}),
        ("[probe]\nenabled = false", {"drift", "pairs"}),
    ],
)
def test_what_is_switched_off_is_no_component(tmp_path: Path, text: str, names: set[str]) -> None:
    node, held = Node("h200x8"), config(tmp_path, text)
    with ExitStack() as stack:
        parts = module.composed(held, node.hardware, module.Keeping(), discover(), None, stack)
        assert {one.name for one in parts.components(held, ())} == names


def test_a_probe_is_due_after_a_hint_of_the_node_that_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(module, "due_after_hint", lambda kept, hinted: noted(given, hinted, kept))
    monkeypatch.setattr(module, "newest_hint", lambda state: f"hint of {state}")
    parts = module.composed(
        config(tmp_path), Node("h200x8").hardware, module.Keeping(), discover(), None, ExitStack()
    )
    parts.components(config(tmp_path), ())
    (hinted,) = given
    assert hinted() is None
    monkeypatch.setattr(parts.topologies.__class__, "node", lambda _: SimpleNamespace(state="now"))
    assert hinted() == "hint of now"


@pytest.mark.parametrize("kept", [False, True])
def test_a_history_makes_probes_persistent_where_there_is_a_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    done: list[str] = []
    monkeypatch.setattr(module, "remember", lambda *_, **__: done.append("remembered"))
    monkeypatch.setattr(module, "persistent", lambda made, *_: noted(done, "persistent", made))
    monkeypatch.setattr(module, "read_result", lambda path, _: done.append(path.name))
    state = open_state(tmp_path / "s") if kept else None
    keeping = module.Keeping(state)
    with ExitStack() as stack:
        parts = module.composed(config(tmp_path), Node("h200x8").hardware, keeping, discover(), None, stack)
        parts.components(config(tmp_path), ())
    assert done == ([state.pairs.name, "remembered", "persistent"] if state else [])


def test_the_last_baseline_is_written_when_the_daemon_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(BaselineStore, "flush", lambda _, seconds: waited.append(seconds))
    with ExitStack() as stack:
        vars(module)["_drifting"](Node("h200x8").hardware, None, stack)
        assert waited == []
    assert waited == [LAST_WRITE]


@pytest.mark.parametrize(("text", "given"), [("", None), ("[drift]\nbaseline = 'p.json'", "graph of p.json")])
def test_a_node_is_compared_with_the_baseline_of_its_product_where_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, given: str | None
) -> None:
    monkeypatch.setattr(module, "given_graph", lambda name: f"graph of {name}")
    monkeypatch.setattr(module, "drift_component", lambda _options, _policy, around: around.given)
    *_, component = vars(module)["_drifting"](Node("h200x8").hardware, None, ExitStack())
    assert component(config(tmp_path, text)) == (given,)


@pytest.mark.parametrize(
    ("text", "name", "runbook"),
    [
        ("", "this-host", OWN), ("[slurm]\nnode = 'n7'", "n7", OWN),
        ("[page]\nrunbook = 'https://w/{rule}'", "this-host", "https://w/{rule}"),
    ],
)  # fmt: skip
def test_the_page_has_the_name_of_the_node_and_its_runbook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, runbook: str
) -> None:
    monkeypatch.setattr(module, "node_name", lambda: "this-host")
    made = vars(module)["_place"](config(tmp_path, text), SimpleNamespace(source="live", about=""))
    assert (made.node, made.runbook) == (name, runbook)


def test_a_file_is_read_again_against_what_holds(tmp_path: Path) -> None:
    first, file = config(tmp_path), tmp_path / "wirewatch.toml"
    again = ConfigurationFile(file, first, lambda _config, collectors: tuple(collectors))
    file.write_text(
        "[listen]\naddress = '127.0.0.1:1'\n[expect]\ngpus = 4\n[collectors.pcie]\nenabled = false\n", "utf-8"
    )
    for _ in range(2):
        read = again.read_again()
        assert (read.restart, read.expect.gpus) == (("listen.address",), 4)
        assert "pcie" not in {one.name for one in read.components}
    file.write_text("nonsense", "utf-8")
    with pytest.raises(ConfigError):
        again.read_again()
    with pytest.raises(Unusable, match="no configuration file"):
        ConfigurationFile(None, first, lambda *_: ()).read_again()


class Composed:
    """A daemon that is composed and ends at once: what was done on the way, and what it was given."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.notes: list[Any] = []
        self.given: Any = None
        nvml = SimpleNamespace(stop=lambda: self.notes.append("stopped"))
        node = Node("h200x8")
        live = replace(node.hardware, probe=ProbeRunner(SimpleNamespace(), None))  # type: ignore[arg-type]
        patch.setattr(module, "_return_large_buffers", lambda: self.notes.append("buffers"))
        patch.setattr(module, "remove_left_folders", lambda: self.notes.append("removed"))
        patch.setattr(module, "replayed", lambda *_, **__: (node.hardware, nvml))
        patch.setattr(module, "live", lambda *_, **__: (live, nvml))
        patch.setattr(module, "announce", lambda *_: self.notes.append("announced"))
        patch.setattr(module, "run_daemon", self._run)
        patch.setattr(Handles, "end", lambda _, why: self.notes.append(why))

    async def _run(self, *given: Any) -> None:
        self.given = given
        self.places = [one and one.getsockname() for one in (given[3].questions, given[3].orders)]
        self.notes.append("ran")


@pytest.mark.parametrize(
    ("given", "text", "prober", "runner"),
    [
        (replace(GIVEN, replay="h200x8", socket=""), "", False, False),
        (replace(GIVEN, replay="h200x8", socket=""), "[probe]\nprober = '/run/p.sock'", True, False),
        (replace(GIVEN, replay="h200x8", socket=""),
         "[probe]\nprober = '/run/p.sock'\nenabled = false", False, False),
        (replace(GIVEN, socket=""), "", False, True),
    ],
)  # fmt: skip
def test_a_daemon_is_composed_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: ServeOptions,
    text: str,
    *,
    prober: bool,
    runner: bool,
) -> None:
    made = Composed(monkeypatch)
    file = tmp_path / "w.toml"
    file.write_text(f"[state]\ndirectory = '{tmp_path / 's'}'\n{text}", "utf-8")
    heard: list[str] = []
    given = replace(given, config_file=file, listen="127.0.0.1:0")
    module.run_serve(given, Reporters(None), heard.append)
    assert [one for one in made.notes if isinstance(one, str)] == [
        "buffers", "removed", "announced", "ran", "the daemon ends", "stopped",
    ]  # fmt: skip
    assert heard[0].startswith("http://127.0.0.1:")
    handles = made.given[4]
    assert made.places == [None, None]
    assert (handles.elsewhere is not None, handles.prober is not None) == (prober, runner)
    assert made.given[8].verdict_file is None


def test_a_daemon_listens_at_its_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Composed(monkeypatch)
    file = tmp_path / "w.toml"
    state, place = tmp_path / "s", tmp_path / "w.sock"
    file.write_text(f"[state]\ndirectory = '{state}'\n[listen]\nsocket = '{place}'\n", "utf-8")
    module.run_serve(replace(GIVEN, config_file=file, replay="h200x8", listen="127.0.0.1:0"), Reporters(None))
    assert made.places == [str(place), control_path(str(place))]
    assert made.given[8].verdict_file is not None
