"""The ports that a command works with: those of this machine, or of a recording."""

from collections.abc import Sequence

from wirewatch.config import Config
from wirewatch.core.ports import Hardware
from wirewatch.hw.command import SystemCommand
from wirewatch.hw.files import SystemKmsg, SystemSysfs
from wirewatch.hw.host import SystemClock, SystemHost
from wirewatch.hw.kubelet import SystemKubelet
from wirewatch.hw.nvml.client import NvmlClient
from wirewatch.hw.nvml.protocol import Source
from wirewatch.hw.overlay import open_player
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
from wirewatch.probe.remote import RemoteProber
from wirewatch.probe.runner import ProbeRunner, RunnerPorts
from wirewatch.probe.statefolder import StateFolder


def live(
    config: Config | None = None, *, timed: bool = False, state: StateFolder | None = None
) -> tuple[Hardware, NvmlClient]:
    """The ports of this machine; `timed`: each NVML call is timed; `state` holds the lock of probes."""
    config = config or Config()
    nvml, sysfs, clock = NvmlClient(Source(timed=timed)), SystemSysfs(), SystemClock()
    hardware = Hardware(
        nvml, sysfs, SystemHost(), SystemKmsg(), SystemCommand(), SystemKubelet(config.kubernetes.socket),
        SystemSlurm(config.slurm.node, config.slurm.conf), clock,
        ProbeRunner(RunnerPorts(nvml, sysfs, clock), state),
    )  # fmt: skip
    return hardware, nvml


def remote_prober(config: Config, hardware: Hardware) -> RemoteProber | None:
    """The prober that the configuration names; None when this process starts its workers itself."""
    path = config.probe.prober
    return RemoteProber(path, hardware.clock, live=hardware.source == "live") if path else None


def replayed(recording: str, overlays: Sequence[str], *, loop: bool) -> tuple[Hardware, NvmlClient]:
    """The ports of a recording that begins to play now; a child process answers for NVML, as on a machine.

    Raises:
        RecordingError, OverlayError: it cannot be played.
    """
    clock = SystemClock()
    source = Source(recording, tuple(overlays), loop, clock.mono())
    player = open_player(source)
    about = [f"recording {player.recording.name}", *(f"overlay {o.name}" for o in player.overlays)]
    about += ["looped with its counters continued"] if loop else []
    about += ["part of it made up"] if player.recording.synthetic else []
    synthetic = loop or overlays or player.recording.synthetic
    nvml = NvmlClient(source)
    hardware = Hardware(
        nvml, ReplaySysfs(player), ReplayHost(player, clock.now()), ReplayKmsg(player),
        ReplayCommand(player), ReplayKubelet(player), ReplaySlurm(player), clock,
        ReplayProbe(player, clock, slowly=True), source="synthetic" if synthetic else "replay",
        about=", ".join(about),
    )  # fmt: skip
    return hardware, nvml
