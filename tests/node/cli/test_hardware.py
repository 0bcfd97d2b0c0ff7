"""The ports that commands work with: of this machine by its configuration, and of a recording."""

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.cli.checks import noted
from wirewatch.cli import hardware as module
from wirewatch.cli.guarded import guard
from wirewatch.cli.hardware import live, play, remote_prober, replayed
from wirewatch.config import Config, JobsSection, Listen
from wirewatch.core.ports import NoRas
from wirewatch.hw.overlay import HURRY
from wirewatch.jobs.ras.client import SocketRas
from wirewatch.probe.model import ProbeOptions


def test_ras_is_asked_where_it_is_configured_alone() -> None:
    assert isinstance(live(Config(jobs=JobsSection(ras=())))[0].ras, NoRas)
    assert isinstance(live(Config(jobs=JobsSection(ras=("127.0.0.1:28028",))))[0].ras, SocketRas)


@pytest.mark.parametrize(
    ("path", "source"), [("", "live"), ("/run/p.sock", "live"), ("/run/p.sock", "replay")]
)
def test_another_prober_is_asked_where_it_is_configured(path: str, source: str) -> None:
    hardware: Any = SimpleNamespace(clock=None, source=source)
    found = remote_prober(Config(probe=ProbeOptions(prober=path)), hardware)
    assert (found is not None) is bool(path)
    assert found is None or found._live is (source == "live")  # noqa: SLF001


@pytest.mark.parametrize(
    ("name", "overlays", "loop", "source", "about"),
    [
        ("h200x8", (), False, "replay", "recording h200x8"),
        ("h200x8", (), True, "synthetic", "recording h200x8, looped with its counters continued"),
        ("h200x8", ("gpu-busy",), False, "synthetic", "recording h200x8, overlay gpu-busy"),
        ("demo-dgx-h200", (), False, "synthetic", "recording demo-dgx-h200, part of it made up"),
    ],
)
def test_a_recording_says_what_of_it_was_not_recorded(
    name: str,
    overlays: tuple[str, ...],
    loop: bool,  # noqa: FBT001
    source: str,
    about: str,
) -> None:
    hardware, _ = replayed(name, overlays, loop=loop)
    assert (hardware.source, hardware.about) == (source, about)


def test_rings_of_this_machine_take_the_place_of_the_recorded_ones(tmp_path: Path) -> None:
    plain, there = replayed("h200x8", ())[0], replayed("h200x8", (), rings=str(tmp_path))[0]
    assert (plain.source, there.source) == ("replay", "synthetic")
    assert there.about == f"recording h200x8, rings of processes of this machine in {tmp_path}"


@pytest.mark.parametrize(("at_fault", "begun"), [(False, 0.0), (True, 30.0)])
def test_a_command_that_reads_once_reads_where_the_last_fault_has_begun(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_fault: bool,  # noqa: FBT001
    begun: float,
) -> None:
    change = '[[change]]\nport = "nvml"\nmatch = "gpu2/x"\nset = 0\nfrom = {}\n'
    paths = [tmp_path / f"{number}.toml" for number in (10, 30)]
    for path in paths:
        path.write_text(f'about = "x"\n{change.format(float(path.stem))}')
    sources: list[Any] = []
    opened: Any = vars(module)["open_player"]
    monkeypatch.setattr(module, "open_player", lambda source: noted(sources, source, opened(source)))
    hardware, _ = replayed("h200x8", [str(path) for path in paths], at_fault=at_fault)
    assert hardware.clock.mono() - sources[0].epoch == pytest.approx(begun, abs=5.0)


@pytest.mark.parametrize(("lead", "waited"), [(None, HURRY), (3.0, 1.0)])
def test_a_played_probe_takes_less_time_for_a_person_who_waits(
    monkeypatch: pytest.MonkeyPatch, lead: float | None, waited: float
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=slept.append))
    hardware, _ = replayed("h200x8", (), lead=lead)
    probe: Any = hardware.probe
    probe._wait(HURRY)  # noqa: SLF001
    assert slept == [waited]


def test_a_play_ends_so_long_after_the_last_change() -> None:
    calm, later = play("h200x8", (), 10.0), play("h200x8", (), 400.0)
    assert calm.steady == later.steady
    assert later.clock.now() - calm.clock.now() == pytest.approx(-390.0, abs=5.0)


def test_a_port_is_guarded_by_the_file_that_is_given_or_configured(tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text("basic_auth_users: {}\n")
    with ExitStack() as stack:

        def guarded(configured: str, given: str | None) -> tuple[bool, int]:
            listen = Listen(address="127.0.0.1:0", web_config=configured)
            port, found = guard(listen, None, given, stack)
            return found.current is not None and found.passwords is not None, port.getsockname()[1]

        assert guarded("", None)[0] is False
        assert guarded(str(file), None)[0] is True
        assert guarded("", str(file))[0] is True
        assert guarded(str(file), "")[0] is False
        port, _ = guard(Listen(address="host.invalid:1"), "127.0.0.1:0", None, stack)
        assert port.getsockname()[0] == "127.0.0.1"
