"""The processes beside which no probe runs, of those that NVML lists on a GPU."""

from wirewatch.core.nvml import gpu_processes
from wirewatch.core.ports import Gpu, Nvml, Sysfs
from wirewatch.core.types import Absent

HARMLESS = frozenset(
    {
        "X", "Xorg", "Xwayland", "gnome-shell", "mutter", "kwin_wayland", "kwin_x11", "plasmashell", "weston",
        "sway", "cinnamon", "xfwm4",
    }
)  # fmt: skip
"""Display servers and desktops, by the name that the kernel has for them, which has at most 15 characters.

They hold a graphics context on every GPU that an X server drives, for as long as the machine is up.
"""
Pids = frozenset[int | None]
"""Ids of processes; None stands for one without an id."""


def foreign_processes(nvml: Nvml, sysfs: Sysfs, gpu: Gpu) -> Pids | Absent:
    """Processes that compute on a GPU or draw with it, but for a display server and a desktop that only draw.

    One that draws and whose name cannot be read counts.
    """
    listed = gpu_processes(nvml, gpu)
    if isinstance(listed, Absent):
        return listed
    computing, drawing = listed
    return computing | {
        pid for pid in drawing if pid is None or sysfs.read(f"/proc/{pid}/comm") not in HARMLESS
    }
