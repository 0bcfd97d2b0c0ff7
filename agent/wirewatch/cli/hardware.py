"""The ports of a command: of this machine, or of a recording."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import click

from wirewatch.config import Config
from wirewatch.core.ports import Clock, Hardware, NoRas
from wirewatch.hw.command import SystemCommand
from wirewatch.hw.files import SystemKmsg, SystemSysfs
from wirewatch.hw.host import SystemClock, SystemHost
from wirewatch.hw.interpreter import absolute
from wirewatch.hw.kubelet import SystemKubelet
from wirewatch.hw.nvml.client import NvmlClient
from wirewatch.hw.nvml.protocol import Source
from wirewatch.hw.overlay import HURRY, Player, find_overlay, load_overlay, open_player
from wirewatch.hw.play import PlayClock, PlayedChild, effects
from wirewatch.hw.recording import find, load_recording
from wirewatch.hw.replay import (
    ReplayCommand,
    ReplayHost,
    ReplayKmsg,
    ReplayKubelet,
    ReplayProbe,
    ReplaySlurm,
    ReplaySysfs,
)
from wirewatch.hw.slurm import SystemSlurm
from wirewatch.jobs.inspector.files import job_rings
from wirewatch.jobs.ras.client import SocketRas, split_address
from wirewatch.jobs.ras.recorded import ReplayRas
from wirewatch.jobs.tap.here import RecordedSysfs, RingsHere
from wirewatch.jobs.tap.recorded import ReplayRings
from wirewatch.jobs.tap.rings import FileRings
from wirewatch.probe.remote import RemoteProber
from wirewatch.probe.runner import ProbeRunner, RunnerPorts
from wirewatch.statefolder import StateError, StateFolder, open_state_for_command, state_directory


def own_state(config: Config, lost: str = "no lock is respected") -> StateFolder | None:
    """Return the state folder, for a probe's lock; None with a message that names the `lost` function."""
    try:
        return open_state_for_command(state_directory(config.state.directory))
    except StateError as error:
        click.echo(f"wirewatch: {error}; {lost}", err=True)
        return None


def live(
    config: Config, *, timed: bool = False, state: StateFolder | None = None
) -> tuple[Hardware, NvmlClient]:
    """The ports of this machine; `timed`: each NVML call is timed; `state` holds the lock of probes."""
    nvml, sysfs, clock = NvmlClient(Source(timed=timed)), SystemSysfs(), SystemClock()
    hardware = Hardware(
        nvml, sysfs, SystemHost(), SystemKmsg(), SystemCommand(), SystemKubelet(config.kubernetes.socket),
        SystemSlurm(config.slurm.node, config.slurm.conf), clock,
        ProbeRunner(RunnerPorts(nvml, sysfs, clock), state, holds=config.probe.holds),
        rings=job_rings(config.jobs.rings, config.jobs.inspector),
        ras=SocketRas([split_address(one) for one in config.jobs.ras]) if config.jobs.ras else NoRas(),
    )  # fmt: skip
    return hardware, nvml


def remote_prober(config: Config, hardware: Hardware) -> RemoteProber | None:
    """Return the prober that the configuration names; None when this process starts its workers itself."""
    path = config.probe.prober
    return RemoteProber(path, hardware.clock, live=hardware.source == "live") if path else None


def replayed(
    recording: str, overlays: Sequence[str], *, loop: bool = False, at_fault: bool = False, rings: str = "",
    lead: float | None = None,
) -> tuple[Hardware, NvmlClient]:  # fmt: skip
    """The ports of a recording that plays from now on; a child process answers for NVML, as on a machine.

    Raises RecordingError, OverlayError: it cannot be played.
    `at_fault`: it begins where all changes of the overlays have begun, for a command that reads once.
    `lead`: seconds until the overlays' faults begin, which then go on faster (`Overlay.hurried`).
    `rings`: a folder of rings of this machine, read instead of the recording's.
    """
    clock = SystemClock()
    begun = max((load_overlay(path).begun for path in overlays), default=0.0) if at_fault else 0.0
    changes = tuple(absolute(str(find_overlay(path))) for path in overlays)
    source = Source(absolute(str(find(recording))), changes, loop, clock.mono() - begun, lead=lead)
    nvml = NvmlClient(source)
    # For a person who waits, a played probe takes less time.
    wait = time.sleep if lead is None else lambda seconds: time.sleep(seconds / HURRY)
    hardware = _playing(open_player(source), nvml, clock, wait)
    if rings:
        here = RingsHere(FileRings(rings))
        hardware = replace(
            hardware, sysfs=RecordedSysfs(hardware.sysfs, SystemSysfs(), here), rings=here,
            source="synthetic", about=f"{hardware.about}, rings of processes of this machine in {rings}",
        )  # fmt: skip
    return hardware, nvml


@dataclass(frozen=True, slots=True)
class PlayedPorts:
    """The ports of a recording whose time `clock` counts; after `steady` seconds nothing new begins."""

    hardware: Hardware
    nvml: NvmlClient
    clock: PlayClock
    steady: float


def play(recording: str, overlays: Sequence[str], hold: float) -> PlayedPorts:
    """A recording to be played at once, all in this process.

    The Unix time is now when the play ends `hold` seconds after nothing new begins or ends any more. Raises
    RecordingError, OverlayError: it cannot be played.
    """
    player = Player(load_recording(recording), lambda: 0.0, tuple(load_overlay(path) for path in overlays))
    clock = PlayClock(player.steady + hold)
    player = replace(player, seconds=clock.seconds, effects=effects(clock))
    nvml = NvmlClient(start=lambda _: PlayedChild(player, clock), mono=clock.mono)
    return PlayedPorts(_playing(player, nvml, clock, clock.wait), nvml, clock, player.steady)


def _playing(player: Player, nvml: NvmlClient, clock: Clock, wait: Callable[[float], None]) -> Hardware:
    about = [f"recording {player.recording.name}", *(f"overlay {o.name}" for o in player.overlays)]
    about += ["looped with its counters continued"] if player.loop else []
    about += ["part of it made up"] if player.recording.synthetic else []
    synthetic = player.loop or player.overlays or player.recording.synthetic
    return Hardware(
        nvml, ReplaySysfs(player), ReplayHost(player, clock.now()), ReplayKmsg(player),
        ReplayCommand(player), ReplayKubelet(player), ReplaySlurm(player), clock,
        ReplayProbe(player, clock, wait), source="synthetic" if synthetic else "replay",
        about=", ".join(about), rings=ReplayRings(player, clock), ras=ReplayRas(player),
    )  # fmt: skip
