"""The ports that a command works with: this machine's, or a recording's."""

from collections.abc import Sequence

from wirewatch.core.ports import Hardware
from wirewatch.hw.clock import SystemClock
from wirewatch.hw.command import SystemCommand
from wirewatch.hw.host import SystemHost
from wirewatch.hw.kmsg import SystemKmsg
from wirewatch.hw.nvml.client import NvmlClient
from wirewatch.hw.nvml.wire import Source
from wirewatch.hw.replay import ReplayCommand, ReplayHost, ReplayKmsg, ReplaySysfs, open_player
from wirewatch.hw.sysfs import SystemSysfs


def live(*, timed: bool = False) -> tuple[Hardware, NvmlClient]:
    """This machine; `timed` for answers that tell how long each call took."""
    nvml = NvmlClient(Source(timed=timed))
    return Hardware(nvml, SystemSysfs(), SystemHost(), SystemKmsg(), SystemCommand(), SystemClock()), nvml


def replayed(recording: str, overlays: Sequence[str], *, loop: bool) -> tuple[Hardware, NvmlClient]:
    """A recording that begins to play now; NVML is answered by a child process, as on a real machine.

    Raises:
        RecordingError, OverlayError: it cannot be played.
    """
    clock = SystemClock()
    source = Source(recording, tuple(overlays), loop, clock.mono())
    player = open_player(source)
    told = [f"recording {player.recording.name}", *(f"overlay {o.name}" for o in player.overlays)]
    told += ["looped with its counters continued"] if loop else []
    told += ["part of it made up"] if player.recording.synthetic else []
    synthetic = loop or overlays or player.recording.synthetic
    nvml = NvmlClient(source)
    hardware = Hardware(
        nvml, ReplaySysfs(player), ReplayHost(player, clock.now()), ReplayKmsg(player),
        ReplayCommand(player), clock, "synthetic" if synthetic else "replay", ", ".join(told),
    )  # fmt: skip
    return hardware, nvml
