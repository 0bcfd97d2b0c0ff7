"""Whatever a host, a driver or an operator calls things: it is text on the page, and nothing else."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.page.pages import Strict, html_of
from tests.node.page.states import state
from wirewatch.page.content import PageContent
from wirewatch.page.html import ticked

OURS = frozenset(
    {"schema", "health", "stage", "source", "collector", "place", "ends", "name", "id", "against"}
)
"""Fields that hold words of our own code; all others may hold a stranger's."""
HOSTILE = (
    "</title><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' autofocus onfocus='x", "<!--",
    "]]>", "&lt;b&gt;&amp;&#0;", "{{ 7 * 7 }}{% raw %}", "javascript:alert(1)", "`code` <b>`",
    "\x1b[31m\x00\u202e\ufeff", "\ud800", "</style><style>*{display:none}", "x" * 3000,
)  # fmt: skip
STATES = ("straggler", "gpu-lost", "drifted", "suppressed", "port-down")


def renamed(value: Any, change: Callable[[str], str]) -> Any:
    """The same, with every text that may be a stranger's changed."""
    if isinstance(value, str):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        told = {one.name: getattr(value, one.name) for one in fields(value) if one.name not in OURS}
        return replace(value, **{name: renamed(each, change) for name, each in told.items()})
    if isinstance(value, Mapping):
        return {name: renamed(each, change) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(renamed(each, change) for each in value)
    return value


def outline(told: PageContent) -> list[tuple[str, tuple[str, ...]]]:
    """Elements and their attributes, without what they hold."""
    return [(one.tag, tuple(one.attributes)) for one in Strict(html_of(told)).elements]


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_name_changes_no_element(name: str, hostile: str) -> None:
    told = state(name)
    plain = "x" * len(hostile)
    expected = outline(renamed(told, lambda text: plain + text))
    found = outline(renamed(told, lambda text: hostile + text))
    ticks = [("code", ())]
    assert [one for one in found if one not in ticks] == [one for one in expected if one not in ticks]


def test_a_hostile_name_is_shown_as_it_is() -> None:
    bad = HOSTILE[0]
    found = Strict(html_of(renamed(state("gpu-lost"), lambda text: bad + text)))
    assert found.all("p", **{"class": "evidence"})[0].text.startswith(bad)
    assert found.all("script") == []


@settings(max_examples=examples(200))
@given(st.text(st.characters(codec=None), max_size=40))
@example("`")
@example("a`b`c`d")
def test_any_text_leaves_the_page_valid(text: str) -> None:
    """The strict reader raises for what is no valid page."""
    assert Strict(html_of(renamed(state("drifted"), lambda known: known + text))).all("h1")


@given(st.text("`ab<&", max_size=12))
def test_text_between_backticks_is_code_and_nothing_is_lost(text: str) -> None:
    found = Strict(f"<p>{ticked(text)}</p>")
    codes = text.count("`") // 2 if text.count("`") % 2 == 0 else 0
    assert len(found.all("code")) == codes
    told = "".join(found.elements[0].texts)
    assert told == (text.replace("`", "") if text.count("`") % 2 == 0 else text)
