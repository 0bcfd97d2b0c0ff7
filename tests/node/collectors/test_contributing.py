"""The collector in CONTRIBUTING.md works as it stands there."""

import re
from pathlib import Path

import pytest

from tests.rows import each
from tests.support import Node
from wirewatch.core.collector import Collector, Component

GUIDE = Path(__file__).parents[3] / "CONTRIBUTING.md"


def example() -> str:
    """The code of the guide."""
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), flags=re.DOTALL)
    assert isinstance(code, str)
    return code


def test_the_example_of_the_guide_is_a_collector_that_runs() -> None:
    module: dict[str, object] = {"__name__": "fans"}
    exec(compile(example(), str(GUIDE), "exec"), module)  # noqa: S102 - the guide's own text
    collector = module["COLLECTOR"]
    assert isinstance(collector, Collector)
    node = Node()
    node.collectors = {"fans": collector}
    node.state = node.state.with_component(Component("fans", collector.start))
    node.change("gpu*/FanSpeed()", "set", 30)
    node.change("gpu2/FanSpeed()", "set", 100)
    node.change("gpu3/FanSpeed()", "code", 3)
    node.change("gpu4/*", "code", 15)
    node.poll("fans", times=2)
    assert node.series("gpu_fan_speed_ratio") == [0.3, 0.3, 1.0, 0.3, 0.3, 0.3]
    node.poll("fans")
    found = {(f.rule, f.subject.gpu) for f in node.state.components["fans"].findings}
    assert found == {("fans.at_most", "2"), ("fans.blind", "4")}
    node.change("gpu2/FanSpeed()", "code", 999)
    node.poll("fans")
    found = {(f.rule, f.subject.gpu) for f in node.state.components["fans"].findings}
    assert found == {("fans.at_most", "2"), ("fans.blind", "2"), ("fans.blind", "4")}


@each(
    ("given", "written", "said"),
    [
        ("gpu_fan_speed_ratio", "gpu_fan_speed_rpm", "declare its own: unit='rpm'"),
        ('name="fans"', 'name="fan-speed"', "write lower-case words joined by _"),
        ('lane="nvml"', 'lane="fans"', "choose its lane among nvml, files, "),
        ("series=8", "series=4", "let series be 8 or more"),
        ('"fans.at_most"', '"at_most"', r"write family\.fault"),
    ],
)
def test_what_is_wrong_in_the_example_is_said_when_it_is_imported(
    given: str, written: str, said: str
) -> None:
    assert given in example()
    with pytest.raises(ValueError, match=said):
        exec(compile(example().replace(given, written), str(GUIDE), "exec"), {"__name__": "fans"})  # noqa: S102
