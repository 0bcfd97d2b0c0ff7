"""A module of the collectors' folder is found there, or refused with what to write in it."""

import importlib
import itertools
from pathlib import Path

import pytest

from wirewatch import catalogue, collectors
from wirewatch.catalogue import rule_of
from wirewatch.core.collector import UNKNOWN, Rule

TEMPLATE = """from dataclasses import replace

from tests.node.core.linkcollector import LINKS
from wirewatch.core.types import Kind, Metric

COLLECTOR = replace(LINKS, name="{name}", metrics=(Metric("{metric}", Kind.COUNTER, (), "Turns."),))
"""
unique = itertools.count()


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> str:
    """Put this module, and no other, among the collectors; return its name."""
    module = f"fan_speed_{next(unique)}"
    (folder / f"{module}.py").write_text(code.replace("MODULE", module), "utf-8")
    monkeypatch.setattr(collectors, "__path__", [str(folder)])
    importlib.invalidate_caches()
    return module


def test_a_module_is_a_collector_by_being_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = TEMPLATE.format(name="MODULE", metric="fan_turns_total")
    module = written(tmp_path, monkeypatch, code)
    assert module in {one.name for one in catalogue.discover.__wrapped__()}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("LINKS = 1\n", "has no COLLECTOR"),
        (TEMPLATE.format(name="fans", metric="fan_turns_total"), "give the collector this name, in place of"),
        (
            TEMPLATE.format(name="MODULE", metric="job_hangs_total"),
            "metric 'job_hangs_total': declare it once",
        ),
    ],
)
def test_a_module_is_refused_with_what_to_write(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch, code)
    with pytest.raises((TypeError, ValueError), match=said):
        catalogue.discover.__wrapped__()


def test_a_component_is_refused_that_claims_what_the_probe_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch, TEMPLATE.format(name="MODULE", metric="probe_runs_total"))
    monkeypatch.setattr(catalogue, "discover", catalogue.discover.__wrapped__)
    with pytest.raises(ValueError, match="metric 'probe_runs_total': declare it once, and not 2 times"):
        catalogue.components()


def test_a_rule_is_found_by_its_name_and_else_by_its_pattern() -> None:
    given = (Rule("a.*", UNKNOWN), Rule("a.b", UNKNOWN), Rule("a.c", UNKNOWN))
    assert rule_of("a.b", given) is given[1]
    assert rule_of("a.x", given) is given[0]
    assert rule_of("nvlink.link_down", given) is None
    known = rule_of("nvlink.link_down")
    assert known is not None
    assert known.name == "nvlink.link_down"
