"""What `wirewatch topology` makes of a graph and of differences, part by part."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.node.cli.checks import noted
from tests.rows import each
from wirewatch.cli import topology as module
from wirewatch.cli.check import polling
from wirewatch.core.collector import NodeState
from wirewatch.core.topology import SWITCH
from wirewatch.core.types import Health, Unusable
from wirewatch.documents import drift as drifts


def part(name: str, *values: Any, **more: Any) -> Any:
    return vars(module)[f"_{name}"](*values, **more)


def nic(device: str, *paths: tuple[str, str]) -> Any:
    return SimpleNamespace(device=device, paths=[SimpleNamespace(gpu=gpu, path=path) for gpu, path in paths])


@each(
    ("nics", "text"),
    [
        ([], "-"),
        ([nic("mlx5_0", ("b", "PIX"))], "-"),
        ([nic("mlx5_0", ("a", ""))], "-"),
        (
            [nic("mlx5_10", ("a", "PIX")), nic("mlx5_2", ("a", "PIX")), nic("mlx5_1", ("a", "SYS"))],
            "mlx5_2, mlx5_10 (PIX)",
        ),
        ([nic("mlx5_0", ("a", "SYS")), nic("mlx5_1", ("a", "NODE"))], "mlx5_1 (NODE)"),
    ],
)
def test_the_nearest_network_cards(nics: Any, text: str) -> None:
    assert part("nearest", SimpleNamespace(nics=nics), SimpleNamespace(key="a")) == text


def test_the_wires_of_a_gpu() -> None:
    def gpu(*wires: tuple[str, int], read: bool = True) -> Any:
        made = [SimpleNamespace(peer=peer, links=[0] * count) for peer, count in wires]
        return SimpleNamespace(read=read, wires=made)

    graph = SimpleNamespace(gpus=[])
    assert part("wires", graph, gpu()) == "none"
    assert part("wires", graph, gpu((SWITCH, 18), read=False)) == "not read"
    assert part("wires", graph, gpu((SWITCH, 16), ("x", 2))) == "16 to the switch, 2 to x"
    assert [part("numa", SimpleNamespace(spot=SimpleNamespace(numa=numa))) for numa in (None, 0, 1)] == [
        "-",
        "0",
        "1",
    ]


@each(
    ("links", "unread", "lines"),
    [
        ((18, 18), (), ["nvlink_links = 18"]),
        ((18, 17), (), []),
        ((0, 0), (), []),
        ((18, 18), ("a",), []),
        ((0, 18), (), []),
    ],
)
def test_links_are_expected_where_all_gpus_have_as_many(
    links: tuple[int, ...], unread: Any, lines: list[str]
) -> None:
    topology = SimpleNamespace(
        gpus=[SimpleNamespace(uuid=str(n)) for n in range(len(links))], unread=unread,
        nvlink=[SimpleNamespace(uuid=str(n), links=[0] * count) for n, count in enumerate(links)],
    )  # fmt: skip
    assert list(part("nvlink", topology)) == lines


@pytest.mark.parametrize(
    ("rates", "lines"),
    [
        (None, []),
        ({}, []),
        ({"a": 5e10}, ["rdma_ports = 1", "rdma_rate_bytes_per_second = 50000000000.0"]),
        ({"a": 5e10, "b": 2.5e10}, ["rdma_ports = 2"]),
    ],
)
def test_ports_are_expected_with_their_rate_where_it_is_one(rates: Any, lines: list[str]) -> None:
    state = SimpleNamespace(facts=lambda _: None if rates is None else SimpleNamespace(rates=rates))
    assert list(part("rdma", state)) == lines


def test_why_nothing_is_expected_of_a_node() -> None:
    finding = SimpleNamespace(rule="gpu.lost", evidence="GPU 2 is gone")
    told = [
        module.refusal(SimpleNamespace(health=Health.FAILED, findings=found))  # type: ignore[arg-type]
        for found in ([], [finding])
    ]
    assert told[0] == "no [expect] is made of a node that is FAILED"
    assert told[1] == f"{told[0]}: gpu.lost: GPU 2 is gone"


def test_changes_are_shown_the_worst_first(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def render(_package: str, _template: str, **values: Any) -> str:
        given.append([one["health"] for one in values["changes"]])
        return "text\n"

    monkeypatch.setattr(module, "render", render)
    document = {"changes": [{"health": health} for health in ("ok", "failed", "degraded")]}
    assert part("changes", "x", document) == "text"
    part("changes", "x", document, whole=False)
    assert given == [["failed", "degraded", "ok"], []]
    assert [part("word", health) for health in ("ok", "failed")] == ["information", "FAILED"]


# --- commands


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(module.topology, words)
    return done.exit_code, done.output


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each topology is its name and where it is from."""

    def known(kind: str) -> Any:
        return lambda *given: SimpleNamespace(of=kind, topology=[str(one) for one in given])

    for kind in ("of_recording", "of_this_node", "of_name"):
        monkeypatch.setattr(module, kind, known(kind))
    monkeypatch.setattr(module, "_formatted", lambda one, form: f"{form} {one.of} {one.topology}\n\n")


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "text of_this_node ['None', 'None']"),
        (("--socket", "s"), "text of_this_node ['None', 's']"),
        (("--replay", "r", "--dot"), "dot of_recording ['r']"),
        (("--replay", "r", "--json"), "json of_recording ['r']"),
        (("--mermaid",), "mermaid of_this_node ['None', 'None']"),
    ],
)
def test_a_topology_is_shown_as_it_was_asked_for(words: tuple[str, ...], text: str) -> None:
    assert run("show", *words) == (0, f"{text}\n")


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize(
    ("words", "compared"),
    [
        (("a",), "of_name ['a'] of_this_node ['None', 'None']"),
        (("a", "b"), "of_name ['a'] of_name ['b']"),
    ],
)
@pytest.mark.parametrize(("health", "code"), [("ok", 0), ("degraded", 1), ("failed", 2)])
def test_two_topologies_are_compared(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], compared: str, health: str, code: int
) -> None:
    def difference(one: Any, other: Any, _at: float) -> Any:
        return SimpleNamespace(health=health, text=f"{one[0]} {one[1]} {other[0]} {other[1]}")

    monkeypatch.setattr(drifts, "difference", difference)
    dumped = SimpleNamespace(dump_json=lambda document, indent: f"json {document.text}".encode())  # noqa: ARG005
    monkeypatch.setattr(drifts, "DIFF", dumped)
    monkeypatch.setattr(module, "changes_text", lambda document: f"text {document.text}")
    assert run("diff", *words) == (code, f"text {compared}\n")
    assert run("diff", *words, "--json") == (code, f"json {compared}\n")


def test_without_names_the_baseline_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "asked_socket", lambda socket, _config: f"asked {socket}")
    monkeypatch.setattr(module, "ask", lambda *given: noted(asked, given, {"health": "degraded"}))
    monkeypatch.setattr(module, "drift_text", lambda _, changes=True: f"changes {changes}")
    assert run("diff") == (1, "changes True\n")
    assert run("diff", "--json", "--socket", "s") == (1, '{\n "health": "degraded"\n}\n')
    assert run("baseline") == (0, "changes False\n")
    assert run("baseline", "--json") == (0, '{\n "health": "degraded"\n}\n')
    assert asked[1] == ("asked s", "GET", "/api/v1/topology/drift", None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), {"by": "ann", "why": "w", "change": ""}),
        (("c1", "--yes", "--by", "bob"), {"by": "bob", "why": "w", "change": "c1", "yes": True}),
    ],
)
def test_an_order_to_accept_says_who_and_why(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: dict[str, Any]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "user", lambda: "ann")
    monkeypatch.setattr(module, "control_socket", lambda socket, _: f"control of {socket}")
    monkeypatch.setattr(module, "order", lambda *given: noted(asked, given, {}))
    monkeypatch.setattr(module, "drift_text", lambda _, changes: f"changes {changes}")
    assert run("accept", *words, "--why", "w", "--socket", "s") == (0, "changes False\n")
    assert asked == [("control of s", "/topology", said)]


@pytest.mark.parametrize(
    ("health", "text"), [(Health.OK, "[expect]\n"), (Health.FAILED, "wirewatch: no [expect]")]
)
def test_only_of_a_node_that_is_well_is_something_expected(
    monkeypatch: pytest.MonkeyPatch, health: Health, text: str
) -> None:
    done: list[Any] = []

    class Node:
        state = "state"

        def __init__(self, _source: Any, *, keep: bool) -> None:
            done.append(keep)

        def poll(self) -> Any:
            return self

        def run(self, end: float) -> None:
            assert before <= end - 60.0 <= time.monotonic()
            done.append("run")

        def grounds(self, _why: str) -> Any:
            return SimpleNamespace(health=health, findings=[])

        def stop(self) -> None:
            done.append("stopped")

    monkeypatch.setattr(polling, "CheckedNode", Node)
    monkeypatch.setattr(module, "expect_section", lambda _: ("[expect]",))
    before = time.monotonic()
    code, out = run("expect")
    assert (code, out.startswith(text), done) == (health and 2, True, [False, "run", "stopped"])


@pytest.mark.parametrize("topology", [None, SimpleNamespace(gpus=[])])
def test_without_gpus_nothing_is_expected(topology: Any) -> None:
    with pytest.raises(Unusable, match="no GPU is known"):
        module.expect_section(SimpleNamespace(facts=lambda _: topology))  # type: ignore[arg-type]
    with pytest.raises(Unusable):
        module.expect_section(NodeState())
