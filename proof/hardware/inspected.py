"""NCCL Inspector in the place of the tap: its plugin in jobs, and its files for the agent."""

import os
from collections.abc import Mapping
from pathlib import Path

from proof.hardware.kit import KitError

INTERVAL = "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"


class Inspected:
    """A build of NCCL Inspector, and the folder that its files are in.

    Raises:
        KitError: there is no such library.
    """

    percent = 25
    """How much slower a rank is that must be named: below 10 % of the time nobody is."""

    def __init__(self, folder: Path, library: Path) -> None:
        if not library.is_file():
            raise KitError(f"no plugin of NCCL Inspector: {library}")
        self.library, self.files = library.resolve(), folder / "inspector"
        self.files.mkdir()

    @property
    def config(self) -> str:
        """Return the line for the agent, below `[jobs]`."""
        return f'inspector = "{self.files}"'

    def settings(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of a job that loads it."""
        return {
            "NCCL_PROFILER_PLUGIN": str(self.library), "NCCL_INSPECTOR_ENABLE": "1",
            INTERVAL: os.environ.get(INTERVAL, "500"), "NCCL_INSPECTOR_DUMP_DIR": str(self.files),
            **(more or {}),
        }  # fmt: skip
