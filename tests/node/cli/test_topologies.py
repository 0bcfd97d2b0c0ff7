"""Pictures: the text is well-formed, whatever the names are, and shows every part and every wire."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.node.cli.checks import noted
from tests.node.verdict.drift.drawn import BOXES, NOWHERE, Box, bridged, meshed, renumbered, switched
from tests.node.verdict.drift.omissions import OF_GPUS
from wirewatch.cli import hardware
from wirewatch.cli import topologies as module
from wirewatch.cli.topologies import dot, given_graph, mermaid, of_name, of_recording, of_this_node
from wirewatch.config import ConfigError
from wirewatch.core.types import Absent, Unusable, Why
from wirewatch.verdict.drift.canonical import graph_of

STRING = r'"(?:[^"\\\x00-\x1f]|\\.)*"'
ATTRIBUTES = rf"\[\w+={STRING}(?:, \w+={STRING})*\]"
DOT = re.compile(
    rf"graph topology {{|subgraph cluster\d+ {{|}}|label={STRING};|node {ATTRIBUTES};"
    rf"|\w+ {ATTRIBUTES};|\w+ -- \w+ {ATTRIBUTES};"
)
"""Each line of the part of the DOT language that is used; braces are counted apart."""
TEXT = r'"[^"<>`\\\x00-\x1f]*"'
LABEL = r'"(?:[^"<>`\\\x00-\x1f]|<br/>)*"'
MERMAID = re.compile(
    rf"flowchart TB|subgraph cluster\d+\[{TEXT}\]|end|\w+\[{LABEL}\]|\w+\(\[{TEXT}\]\)|\w+ ---\|{TEXT}\| \w+"
)


def check_dot(text: str) -> None:
    depth = 0
    for line in text.splitlines():
        assert DOT.fullmatch(line.strip()), line
        depth += line.endswith("{") - (line.strip() == "}")
        assert depth >= 0
    assert depth == 0
    declared = set(re.findall(r"^ *(\w+) \[label", text, re.MULTILINE))
    assert {end for pair in re.findall(r"(\w+) -- (\w+)", text) for end in pair} <= declared


def check_mermaid(text: str) -> None:
    depth = 0
    for line in text.splitlines():
        assert MERMAID.fullmatch(line.strip()), line
        depth += line.strip().startswith("subgraph") - (line.strip() == "end")
        assert depth >= 0
    assert depth == 0
    declared = set(re.findall(r"^ *(\w+)(?:\[|\()", text, re.MULTILINE))
    assert {end for pair in re.findall(r"(\w+) ---\|.*\| (\w+)", text) for end in pair} <= declared


@example(bridged, '\x85\u2028"\\<b>`#&\n', set())
@given(st.sampled_from(BOXES), st.text(max_size=12), st.sets(st.sampled_from(sorted(OF_GPUS))))
def test_any_names_make_well_formed_text(make: Callable[[], Box], name: str, missing: set[str]) -> None:
    box = make()
    box.gpu(0, name=name)
    for what in sorted(missing):
        OF_GPUS[what](box, 1)
    if 0 in box.nics:
        box.nic(0, model=name, device=f"{name}0", place=NOWHERE)
    graph = graph_of(box.build())
    check_dot(dot(graph))
    check_mermaid(mermaid(graph))


@pytest.mark.parametrize("draw", [dot, mermaid])
def test_everything_is_drawn_once(draw: Callable[..., str]) -> None:
    text = draw(graph_of(switched().build()))
    for n in range(8):
        assert text.count(f"GPU {n} (...{n:04d})") == text.count(f"mlx5_{n}") == 1
    assert (text.count('"18 links"'), text.count("NVSwitch"), text.count("NUMA node")) == (8, 1, 2)


def test_wires_between_two_gpus_are_one_edge() -> None:
    assert re.findall(r"gpu\d -- gpu\d .*", dot(graph_of(bridged().build()))) == [
        'gpu0 -- gpu1 [label="12 links"];', 'gpu2 -- gpu3 [label="12 links"];',
    ]  # fmt: skip
    assert len(re.findall(" -- ", dot(graph_of(meshed().build())))) == 6


def test_ends_that_do_not_agree_and_wires_that_were_not_read_are_shown() -> None:
    box = bridged()
    box.cut(0, 3)
    box.unread.add(2)
    text = mermaid(graph_of(box.build()))
    assert 'gpu0 ---|"11 or 12 links"| gpu1' in text
    assert 'gpu2 ---|"12 links"| gpu3' in text
    assert text.count("NVLink not known") == 1


def test_a_small_node_word_by_word() -> None:
    box = bridged()
    for n in (2, 3):
        box.drop_gpu(n)
        del box.nics[n]
    del box.nics[1]
    assert (
        dot(graph_of(box.build()))
        == r"""graph topology {
  node [shape="box"];
  subgraph cluster0 {
    label="NUMA node 0";
    subgraph cluster1 {
      label="pci0000:10 / 0000:10:01.0 / 0000:11:00.0";
      subgraph cluster2 {
        label="0000:12:00.0";
        nic0 [label="mlx5_0\nMT4129\n0000:13:00.0"];
      }
      subgraph cluster3 {
        label="0000:12:03.0";
        gpu0 [label="GPU 0 (...0000)\nNVIDIA A100 80GB PCIe\n0000:16:00.0"];
      }
    }
    subgraph cluster4 {
      label="pci0000:20 / 0000:20:01.0 / 0000:21:00.0 / 0000:22:03.0";
      gpu1 [label="GPU 1 (...0001)\nNVIDIA A100 80GB PCIe\n0000:26:00.0"];
    }
  }
  gpu0 -- gpu1 [label="12 links"];
}
"""
    )
    small = mermaid(graph_of(box.build())).splitlines()
    assert small[:4] == [
        "flowchart TB",
        '  subgraph cluster0["NUMA node 0"]',
        '    subgraph cluster1["pci0000:10 / 0000:10:01.0 / 0000:11:00.0"]',
        '      subgraph cluster2["0000:12:00.0"]',
    ]
    assert small[-1] == '  gpu0 ---|"12 links"| gpu1'


def test_the_order_of_listing_does_not_show() -> None:
    topology = renumbered(switched().build(), 1)
    listed = topology.gpus[::-1], topology.nics[::-1], topology.nvlink[::-1], topology.paths[::-1]
    turned = type(topology)(*listed, topology.numa_nodes, topology.versions[::-1], topology.unread)
    assert dot(graph_of(topology)) == dot(graph_of(turned))
    assert mermaid(graph_of(topology)) == mermaid(graph_of(turned))


# --- where a topology is from


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was done with the hardware of this machine."""
    done: list[Any] = []
    nvml = SimpleNamespace(stop=lambda: done.append("stopped"))
    monkeypatch.setattr(hardware, "live", lambda _: ("hardware", nvml))
    monkeypatch.setattr(
        hardware, "replayed", lambda *given, **more: (noted(done, (given, more), "played"), nvml)
    )
    monkeypatch.setattr(module, "_read", lambda read, of: noted(done, read, of))
    monkeypatch.setattr(module, "asked_socket", lambda socket, _: socket or "/run/w.sock")
    return done


@pytest.mark.parametrize(
    ("known", "socket", "found", "used"),
    [
        (SimpleNamespace(topology="t", at=7.0), None, ("t", "this node, as its daemon knows it", 7.0), []),
        (SimpleNamespace(topology="t", at=7.0), "s", ("t", "this node, as its daemon knows it", 7.0), []),
        (SimpleNamespace(topology=None), None, "this node", ["hardware", "stopped"]),
        ("no answer", None, "this node", ["hardware", "stopped"]),
        (SimpleNamespace(topology=None), "s", "s: the daemon has not read the topology yet", []),
        ("no answer", "s", "no answer", []),
    ],
)
def test_this_node_is_asked_of_its_daemon_and_else_read(
    monkeypatch: pytest.MonkeyPatch,
    here: list[Any],
    known: Any,
    socket: str | None,
    found: Any,
    used: list[Any],
) -> None:
    monkeypatch.setattr(module, "document_or_reason", lambda *_: known)
    if socket and used == [] and isinstance(found, str):
        with pytest.raises(Unusable, match=found):
            of_this_node(None, socket)
    else:
        one: Any = of_this_node(None, socket)
        assert (one if isinstance(one, str) else (one.topology, one.of, one.at)) == found
    assert here == used


def test_a_recording_is_read_at_its_first_moment(here: list[Any]) -> None:
    found: Any = of_recording("/recordings/h200x8")
    assert found == "recording h200x8"
    assert here == [(("/recordings/h200x8", ()), {"loop": False}), "played", "stopped"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "neither a recording nor a document"),
        (b"\xff", "it is not text in UTF-8"),
        (b"{}", "not a document wirewatch.topology/1"),
        (b'{"schema": "wirewatch.topology/1", "at": 1.0, "topology": null}', "before the topology was read"),
    ],
)
def test_a_file_that_is_no_topology_is_refused(tmp_path: Path, text: bytes | None, why: str) -> None:
    file = tmp_path / "t.json"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(click.UsageError) as refused:
        of_name(str(file))
    assert why in refused.value.message
    with pytest.raises(ConfigError, match=r"drift.baseline: "):
        given_graph(str(file))


def test_a_node_whose_topology_cannot_be_read_is_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Absent(Why.DENIED, "no")
    monkeypatch.setattr("wirewatch.collectors.topology.read_topology", lambda _: absent)
    with pytest.raises(Unusable, match="the topology of x cannot be read"):
        vars(module)["_read"](SimpleNamespace(), "x")


def test_a_folder_or_a_bundled_name_is_a_recording(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = [module.is_recording(str(name)) for name in (tmp_path, "h200x8", tmp_path / "file", "none")]
    assert found == [True, True, False, False]


def test_gpus_without_what_names_them_have_no_edges() -> None:
    """Two such GPUs are not each other's peer; what one end did not read the other end may have."""
    box = bridged()
    box.unread |= {0, 1}
    text = dot(graph_of(box.build()))
    assert "gpu0 -- gpu1" not in text
    assert "gpu2 -- gpu3" in text
