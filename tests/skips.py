"""Reasons for which a test may skip; a skip for any other reason is a failure."""

import re
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

ALLOWED = (
    # Who runs the tests.
    "becomes another user",
    "needs another user's processes",
    "needs root, to become another user",
    "only root can (ask as somebody else|give a folder to another user)",
    "only root can mount a disk, with a program for it",
    "permissions do not bind root",
    "root may (look into every process|read every file|read everything)",
    "root may read everything: only another user can be refused",
    "takes root, who may become nobody",
    # A program that Debian has in a package.
    "(jq|Slurm) is not installed",
    "no flock program",
    # The kernel and the machine.
    "/dev/kmsg: .*",
    "about a machine without GPUs",
    "no /dev/shm here",
    "no more than 1200 descriptors are allowed here",
    "no process may trace another here: .*",
    "temporary files are in memory here",
    "the kernel does not tell who locked a file here",
    "this machine has (NVML|a driver; the test is about one that has none)",
    "with a driver there may be a probe",
)
"""Patterns of whole reasons."""


class Skips:
    """Turns a skip whose reason is not allowed into a failure."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        return judged((yield))

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        return judged((yield))


def judged(report: Report) -> Report:
    """Return the report, failed when it is a skip for a reason that is not allowed."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        if not any(re.fullmatch(pattern, reason) for pattern in ALLOWED):
            report.outcome = "failed"
            report.longrepr = f"a skip for a reason that tests/skips.py does not allow: {reason}"
    return report
