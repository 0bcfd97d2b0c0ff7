"""How long a process waits for another, and how much it takes of it: a change of any is meant."""

from types import ModuleType

import pytest

from wirewatch import client, config, signals, statefolder
from wirewatch.client import LONGEST_PATH, unfit


@pytest.mark.parametrize(
    ("module", "limits"),
    [
        (client, {"LIMIT": 64 << 20, "_AGAIN": 0.01}),
        (config, {"SPARE": 1.0}),
        (signals, {"LIMIT": 4.0, "AGAIN": 0.1}),
        (statefolder, {"_AGENT_MODE": 0o600, "_PROBE_MODE": 0o644, "_NAME_BYTES": 200, "_OVERFLOW": 65534}),
    ],
)
def test_what_a_process_waits_for_and_takes(module: ModuleType, limits: dict[str, float]) -> None:
    assert {name: getattr(module, name) for name in limits} == limits


def test_a_path_may_be_as_long_as_the_kernel_takes_and_no_longer() -> None:
    assert LONGEST_PATH == 107
    assert unfit("x" * 107) == ""
    assert unfit("x" * 108) == "the path of a socket has at most 107 bytes"
