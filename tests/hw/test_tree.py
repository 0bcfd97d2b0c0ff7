"""The catalogue of files and of questions that a recording holds."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from wirewatch.core.ports import ALL_LINKS, Question, parse_question
from wirewatch.hw import record
from wirewatch.hw.record import walk
from wirewatch.hw.sysfs import SystemSysfs


def node(root: Path) -> Path:
    """A /sys with a GPU, a network card with one InfiniBand port, and its network device."""
    files = {
        "devices/pci0000:00/0000:00:05.0/vendor": "0x10de",
        "devices/pci0000:00/0000:00:05.0/current_link_width": "16",
        "devices/pci0000:00/0000:00:06.0/vendor": "0x15b3",
        "devices/pci0000:00/0000:00:06.0/numa_node": "1",
        "devices/pci0000:00/0000:00:06.0/net/ib0/address": "00:00:10:29:fe:80",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/node_guid": "5c25:7303:00a1:b2c4",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "1000",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence": "0",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/ports/1/gids/0": "fe80::1",
        "module/nvidia_peermem/version": "580.1",
    }
    for path, text in files.items():
        (root / "sys" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "sys" / path).write_text(f"{text}\n", "utf-8")
    links = {
        "bus/pci/devices/0000:00:05.0": "../../../devices/pci0000:00/0000:00:05.0",
        "bus/pci/devices/0000:00:06.0": "../../../devices/pci0000:00/0000:00:06.0",
        "class/net/ib0": "../../devices/pci0000:00/0000:00:06.0/net/ib0",
        "class/infiniband/mlx5_0": "../../devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/device": "../../../0000:00:06.0",
    }
    for path, target in links.items():
        (root / "sys" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "sys" / path).symlink_to(target)
    return root


def test_the_walk_meets_every_part_of_a_node(tmp_path: Path) -> None:
    walked = set(walk(SystemSysfs(node(tmp_path))))
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    assert walked >= {
        ("list", "/sys/bus/pci/devices"),
        ("link", "/sys/bus/pci/devices/0000:00:05.0"),
        ("read", "/sys/bus/pci/devices/0000:00:05.0/current_link_width"),
        ("list", "/sys/class/net"),
        ("read", "/sys/class/net/ib0/address"),
        ("list", "/sys/class/infiniband"),
        ("link", "/sys/class/infiniband/mlx5_0/device"),
        ("read", "/sys/class/infiniband/mlx5_0/node_guid"),
        ("read", f"{port}/state"),
        ("list", f"{port}/counters"),
        ("read", f"{port}/counters/port_xmit_data"),
        ("read", f"{port}/hw_counters/out_of_sequence"),
        ("read", f"{port}/gids/0"),
        ("read", "/sys/module/nvidia_peermem/version"),
        ("read", "/proc/driver/nvidia/version"),
    }


def test_nothing_is_asked_twice(tmp_path: Path) -> None:
    walked = list(walk(SystemSysfs(node(tmp_path))))
    assert len(set(walked)) == len(walked)


def test_a_machine_without_any_of_it_is_walked_all_the_same(tmp_path: Path) -> None:
    walked = set(walk(SystemSysfs(tmp_path)))
    assert {("list", "/sys/class/infiniband"), ("list", "/sys/bus/pci/devices")} <= walked


def test_the_catalogue_of_a_gpu_asks_nothing_twice_and_every_question_has_a_text() -> None:
    questions = record.gpu_questions(["UUID", "Serial", "PowerUsage"], 8, 18)
    assert len(set(questions)) == len(questions)
    assert [parse_question(str(q)) for q in questions] == questions


def test_the_catalogue_of_a_gpu_holds_getters_links_peers_and_fields_of_every_scope() -> None:
    questions = set(record.gpu_questions(["UUID"], 8, 18))
    assert questions >= {
        Question("UUID"),
        Question("GpuFabricInfoV"),
        Question("Temperature", (0,)),
        Question("NvLinkState", (17,)),
        Question("P2PStatus", (7, 0)),
        Question("Field", (83,)),
        Question("Field", (138, ALL_LINKS)),
        Question("Field", (165, 17)),
    }


def test_what_stops_the_caller_for_long_is_not_asked() -> None:
    questions = record.gpu_questions(["InforomConfigurationChecksum", "UUID"], 1, 0)
    assert Question("UUID") in questions
    assert Question("InforomConfigurationChecksum") not in questions


@given(st.integers(0, 36))
def test_one_link_more_is_asked_for_than_there_are_so_that_the_end_is_recorded(links: int) -> None:
    questions = record.gpu_questions([], 1, links)
    asked = {q.args[0] for q in questions if q.call == "NvLinkState"}
    scopes = {q.args[1] for q in questions if q.call == "Field" and len(q.args) > 1}
    assert asked == set(range(links + 1))
    assert scopes == asked | {ALL_LINKS}
