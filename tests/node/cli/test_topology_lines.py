"""What `wirewatch topology` makes of a graph and of differences, part by part."""

from types import SimpleNamespace
from typing import Any

import pytest

from wirewatch.cli import topology as module
from wirewatch.core.topology import SWITCH
from wirewatch.core.types import Health


def part(name: str, *values: Any, **more: Any) -> Any:
    return vars(module)[f"_{name}"](*values, **more)


def nic(device: str, *paths: tuple[str, str]) -> Any:
    return SimpleNamespace(device=device, paths=[SimpleNamespace(gpu=gpu, path=path) for gpu, path in paths])


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
