"""Masking: nothing that names a machine leaves it, and the shape of everything stays."""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.hw.masks import mask
from tests.rows import each
from wirewatch.core.ports import Answer
from wirewatch.core.types import Absent, Why
from wirewatch.hw.masking import Masker, shape
from wirewatch.hw.recording import pack

NVML, SYSFS, HOST = "nvml", "sysfs", "host"
ZERO_GUID = "0000:0000:0000:0000"

# Digits other than zero only, so that no stand-in can hold one of these by chance.
UUIDS = st.uuids(version=4).map(lambda u: f"GPU-{str(u).replace('0', 'f')}")
SERIALS = st.from_regex(r"[1-9]{13}", fullmatch=True)
GUIDS = st.from_regex(r"[1-9a-f]{4}(:[1-9a-f]{4}){3}", fullmatch=True)
MACS = st.from_regex(r"[1-9a-f]{2}(:[1-9a-f]{2}){5}", fullmatch=True)
HOSTS = st.from_regex(r"[g-w]{4,10}-[1-9]{2,4}(\.[g-w]{4,8})?", fullmatch=True)
HEXES = st.from_regex(r"0x[1-9a-f]{12}", fullmatch=True)
TEXTS = st.one_of(UUIDS, SERIALS, GUIDS, MACS, HOSTS, HEXES)
NUMBERS = st.integers(10**12, 2**64 - 1)


def row(port: str, question: str, answer: Any) -> dict[str, Any]:
    return pack(0, port, question, Answer(answer, 1.0))


def answer_to(rows: Sequence[Mapping[str, Any]], question: str) -> Any:
    return next(r["answer"] for r in rows if r["question"] == question)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[str], list[int]]:
    """Rows of a node, and the secrets in them; each secret stands in other rows' text as well."""
    gpus, ports = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    numbers = draw(st.lists(NUMBERS, min_size=gpus, max_size=gpus, unique=True))
    rows = [row(NVML, f"gpu{i}/Pdi()", number) for i, number in enumerate(numbers)]
    secrets = []

    def add(port: str, question: str, values: st.SearchStrategy[str]) -> None:
        secret = draw(values)
        secrets.append(secret)
        rows.append(row(port, question, secret))

    for index in range(gpus):
        add(NVML, f"gpu{index}/UUID()", UUIDS)
        add(NVML, f"gpu{index}/Serial()", SERIALS)
    for index in range(ports):
        add(SYSFS, f"read /sys/class/infiniband/mlx5_{index}/node_guid", GUIDS)
        add(SYSFS, f"read /sys/class/net/eth{index}/address", MACS)
    add(HOST, "Hostname()", HOSTS)
    for number, secret in enumerate(secrets):
        rows.append(row(NVML, f"Text({number})", f"seen {secret}, twice: {secret}"))
        rows.append(row(NVML, f"Structure({number})", {"list": [{"of": secret}]}))
    return draw(st.permutations(rows)), secrets, numbers


@settings(max_examples=examples(200))
@given(nodes())
def test_no_secret_survives_anywhere(node: tuple[list[dict[str, Any]], list[str], list[int]]) -> None:
    rows, secrets, numbers = node
    text = json.dumps(mask(rows))
    assert [s for s in [*secrets, *map(str, numbers)] if s in text] == []


@settings(max_examples=examples(200))
@given(nodes())
def test_masking_replaces_like_by_like_everywhere(
    node: tuple[list[dict[str, Any]], list[str], list[int]],
) -> None:
    rows, secrets, _ = node
    masked = mask(rows)
    stands: dict[str, str] = {}
    for before, after in zip(rows, masked, strict=True):
        if before["answer"] in secrets:
            assert stands.setdefault(before["answer"], after["answer"]) == after["answer"]
    assert len(set(stands.values())) == len(stands)
    for number, secret in enumerate(secrets):
        assert answer_to(masked, f"Text({number})") == f"seen {stands[secret]}, twice: {stands[secret]}"
        assert answer_to(masked, f"Structure({number})") == {"list": [{"of": stands[secret]}]}


@settings(max_examples=examples(200))
@given(nodes())
def test_masking_leaves_the_rows_it_was_given_as_they_are(
    node: tuple[list[dict[str, Any]], list[str], list[int]],
) -> None:
    rows, _, _ = node
    before = json.dumps(rows)
    assert len(mask(rows)) == len(rows)
    assert json.dumps(rows) == before


@given(TEXTS, st.integers(0, 999))
def test_a_stand_in_has_the_length_and_the_separators_of_what_it_stands_for(text: str, number: int) -> None:
    stand_in = shape(text, number)
    assert stand_in != text
    separators = re.compile(r"[^0-9A-Za-z]")
    assert [m.span() for m in separators.finditer(stand_in)] == [m.span() for m in separators.finditer(text)]
    assert separators.findall(stand_in) == separators.findall(text)
    assert len(stand_in) == len(text)
    assert stand_in.startswith("0x") == text.startswith("0x")


@given(
    secret=st.uuids(),
    prefix=st.sampled_from(["", "GPU-", "MIG-"]),
    number=st.integers(0, 999),
    upper=st.booleans(),
)
def test_a_uuid_becomes_a_valid_version_4_uuid_with_its_prefix(
    secret: uuid.UUID, prefix: str, number: int, *, upper: bool
) -> None:
    text = str(secret).upper() if upper else str(secret)
    stand_in = shape(prefix + text, number)
    assert stand_in.startswith(prefix)
    assert uuid.UUID(stand_in.removeprefix(prefix)).version == 4


@pytest.mark.parametrize("kind", [UUIDS, SERIALS, GUIDS, MACS, HOSTS, HEXES])
def test_different_numbers_make_different_stand_ins(kind: st.SearchStrategy[str]) -> None:
    @given(kind, st.lists(st.integers(0, 99), min_size=2, max_size=2, unique=True))
    def check(text: str, numbers: list[int]) -> None:
        assert shape(text, numbers[0]) != shape(text, numbers[1])

    check()


@given(st.lists(NUMBERS, min_size=2, max_size=4))
def test_equal_numbers_stay_equal_and_different_ones_different(numbers: list[int]) -> None:
    masked = mask([row(NVML, f"gpu{i}/Pdi()", n) for i, n in enumerate(numbers)])
    after = [answer_to(masked, f"gpu{i}/Pdi()") for i in range(len(numbers))]
    assert [numbers.index(n) for n in numbers] == [after.index(n) for n in after]
    assert set(after).isdisjoint(numbers)


def test_of_two_secrets_that_begin_alike_the_longer_is_replaced_whole() -> None:
    rows = [
        row(HOST, "Hostname()", "rack12-node17"),
        row(SYSFS, "read /sys/class/infiniband/mlx5_0/node_desc", "rack12-node17 mlx5_0 port"),
        row(NVML, "Text()", "from rack12-node17 mlx5_0 port to rack12-node17"),
    ]
    masked = mask(rows)
    host, port = (answer_to(masked, r["question"]) for r in rows[:2])
    assert answer_to(masked, "Text()") == f"from {port} to {host}"
    assert "mlx5" not in port


@pytest.mark.parametrize("nothing", [ZERO_GUID, "00:00:00:00:00:00", "0" * 32, ""])
def test_what_names_nothing_stays(nothing: str) -> None:
    rows = [
        row(NVML, "gpu0/UUID()", "GPU-5c0ffee5-0000-4000-8000-123456789abc"),
        row(SYSFS, "read /sys/class/infiniband/mlx5_0/node_guid", nothing),
    ]
    assert answer_to(mask(rows), "read /sys/class/infiniband/mlx5_0/node_guid") == nothing


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("gpu0/GpuFabricInfoV()", {"clusterUuid": "8c4f2d6b9e1a4c3da2b7f0e95d136842", "state": 3}),
        ("gpu0/PlatformInfo()", {"ibGuid": "5b9f1d3c7e2a8464", "chassisSerialNumber": "1823322471165"}),
    ],
)
def test_names_inside_structures_are_masked_and_states_are_not(question: str, answer: dict[str, Any]) -> None:
    after = answer_to(
        mask([row(NVML, "gpu0/Serial()", "1651922000000"), row(NVML, question, answer)]), question
    )
    assert set(after) == set(answer)
    for name, value in answer.items():
        assert (after[name] == value) == (name == "state")
        assert len(str(after[name])) == len(str(value))


@each(
    ("port", "question", "answer"),
    [
        (NVML, "gpu0/Name()", "NVIDIA H200"),
        (NVML, "gpu0/VbiosVersion()", "96.00.A5.00.1A"),
        (NVML, "gpu0/PciInfo()", {"busId": "00000000:1B:00.0", "pciDeviceId": 590680286}),
        (NVML, "gpu0/Field(138,all)", 123456789012345),
        (SYSFS, "read /sys/class/net/eth0/mtu", "9000"),
        (SYSFS, "read /sys/class/net/eth0/operstate", "up"),
        (HOST, "Kernel()", "6.8.0-60-generic"),
    ],
)
def test_what_names_no_machine_is_not_touched(port: str, question: str, answer: Any) -> None:
    assert mask([row(port, question, answer)]) == [row(port, question, answer)]


def test_a_boot_id_is_masked() -> None:
    boot = "3f1c9d52-7b6e-4a18-9c35-d2e4f6a8b1c7"
    assert answer_to(mask([row(HOST, "BootId()", boot)]), "BootId()") != boot


def test_a_real_guid_never_becomes_the_all_zero_one_that_names_nothing() -> None:
    first, second = (f"read /sys/class/infiniband/mlx5_{n}/node_guid" for n in range(2))
    masked = mask([row(SYSFS, first, "0c42:a103:0065:8db2"), row(SYSFS, second, ZERO_GUID)])
    assert answer_to(masked, second) == ZERO_GUID
    assert answer_to(masked, first) != ZERO_GUID


@pytest.mark.parametrize("host", ["gpu1", "node"])
def test_a_host_name_that_is_also_a_word_of_ours_leaves_the_questions_whole(host: str) -> None:
    rows = [
        row(HOST, "Hostname()", host),
        row(NVML, "gpu1/UUID()", "GPU-5c0ffee5-1111-4000-8000-123456789abc"),
        row(SYSFS, "read /sys/class/infiniband/mlx5_0/node_type", "1: CA"),
    ]
    masked = mask(rows)
    assert [(r["port"], r["question"]) for r in masked] == [(r["port"], r["question"]) for r in rows]
    assert answer_to(masked, "Hostname()") != host


@pytest.mark.parametrize("host", ["n17", "a1"])
def test_a_short_host_name_is_masked_too(host: str) -> None:
    assert answer_to(mask([row(HOST, "Hostname()", host)]), "Hostname()") != host


def test_a_network_address_inside_an_interface_s_name_is_masked_too() -> None:
    """The kernel's name for the USB link to a board controller is `enx` and the address."""
    name = "enxb03af2b6059f"
    rows = [
        row(SYSFS, "list /sys/class/net", ["eth0", "lo", name]),
        row(SYSFS, f"read /sys/class/net/{name}/address", "b0:3a:f2:b6:05:9f"),
    ]
    assert "b03af2b6059f" not in json.dumps(mask(rows))


def pods(*told: tuple[str, str, str]) -> dict[str, Any]:
    """A row of pods: namespace, name, and the id of a device."""
    listed = [
        {"namespace": namespace, "name": name, "devices": [["nvidia.com/gpu", device]], "claims": []}
        for namespace, name, device in told
    ]
    return row("kubelet", "Pods()", listed)


WORDS = st.from_regex(r"[g-w]{2,12}(-[g-w]{1,5}){0,2}", fullmatch=True)
NAMED = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6)


@given(NAMED)
def test_pods_and_namespaces_are_masked_alike_and_keep_their_shape(named: list[tuple[str, str]]) -> None:
    told_pods = pods(*((namespace, name, "0") for namespace, name in named))
    after = answer_to(mask([told_pods, {**told_pods, "moment": 1}]), "Pods()")
    for member, place in (("namespace", 0), ("name", 1)):
        stands = {pair[place]: pod[member] for pair, pod in zip(named, after, strict=True)}
        assert all(pod[member] == stands[pair[place]] for pair, pod in zip(named, after, strict=True))
        assert len(set(stands.values())) == len(stands)
        assert all(len(new) == len(old) and new != old for old, new in stands.items())


def test_a_name_of_a_pod_that_is_also_a_word_of_ours_leaves_everything_else_whole() -> None:
    rows = [pods(("default", "NVIDIA", "0"), ("nvidia", "gpu", "0")), row(NVML, "gpu0/Name()", "NVIDIA H200")]
    masked = mask(rows)
    assert masked[1] == rows[1]
    assert [pod["devices"] for pod in masked[0]["answer"]] == [[["nvidia.com/gpu", "0"]]] * 2
    assert {pod["name"] for pod in masked[0]["answer"]}.isdisjoint({"NVIDIA", "gpu"})


def test_devices_of_pods_go_by_the_stand_ins_of_the_gpus_that_they_are() -> None:
    gpu, mig = "GPU-5c0ffee5-1111-4000-8000-123456789abc", "MIG-5c0ffee5-2222-4000-8000-123456789abc"
    rows = [pods(("ml", "a", f"{gpu}::3"), ("ml", "b", mig)), row(NVML, "gpu0/UUID()", gpu)]
    masked = mask(rows)
    first, second = (pod["devices"][0][1] for pod in masked[0]["answer"])
    assert first == f"{answer_to(masked, 'gpu0/UUID()')}::3"
    assert uuid.UUID(second.removeprefix("MIG-")).version == 4
    assert "5c0ffee5" not in json.dumps(masked)


def test_pools_of_claimed_devices_are_masked_since_they_are_nodes() -> None:
    claims = [["gpu.nvidia.com", "rack12-node17", "gpu-0"]]
    pod = {"namespace": "ml", "name": "a-0", "devices": [], "claims": claims}
    (after,) = answer_to(mask([row("kubelet", "Pods()", [pod])]), "Pods()")
    ((driver, pool, device),) = after["claims"]
    assert (driver, device) == ("gpu.nvidia.com", "gpu-0")
    assert len(pool) == len("rack12-node17")
    assert "rack" not in pool


def test_jobs_and_what_did_not_answer_stay_as_they_are() -> None:
    gone = Absent(Why.LOST, "it is gone")
    rows = [
        row("slurm", "Jobs()", [{"id": "1234", "state": "RUNNING", "gpus": [0, 1]}]),
        row("kubelet", "Pods()", gone), row("rings", "Rings()", gone), row("ras", "Reports()", gone),
        row("kmsg", "Records()", gone), row(NVML, "gpu0/Serial()", gone),
    ]  # fmt: skip
    assert mask(rows) == rows


def test_learning_says_whether_a_secret_is_new() -> None:
    masker, rows = Masker(), [row(NVML, "gpu0/Serial()", "1651922000000")]
    assert [masker.learn(rows), masker.learn(rows), masker.learn([])] == [True, False, False]
    members = {"chassisPhysicalSlot": 3, "out": 7, "state": "0x0123456789abcdef"}
    assert masker.learn([row(NVML, "gpu0/PlatformInfo()", members)]) is False
    assert masker.learn([row("command", "ibstat()", {"out": "GUID: 0x0123456789abcdef"})]) is True
    assert masker.learn([row(NVML, "gpu0/Pdi()", 7)]) is True


def test_a_name_of_four_letters_is_looked_for_everywhere_and_a_shorter_one_is_not() -> None:
    rows = [row(HOST, "Hostname()", "n001"), row(NVML, "Text()", "to n001, n00, n0012")]
    masked = mask(rows)
    assert masked[1]["answer"] == f"to {masked[0]['answer']}, n00, n0012"
    assert masked[0]["answer"] != "n001"
    short = [row(HOST, "Hostname()", "n01"), row(NVML, "Text()", "to n01")]
    assert mask(short)[1]["answer"] == "to n01"


def test_an_identifier_of_a_boot_is_replaced_in_questions_too() -> None:
    boot = "3f1c9d52-7b6e-4a18-9c35-d2e4f6a8b1c7"
    masked = mask([row(HOST, "BootId()", boot), row(SYSFS, f"read /boot/{boot}", "x")])
    assert masked[1]["question"] == f"read /boot/{masked[0]['answer']}"


def test_a_process_is_masked_in_the_kernel_s_log_alone() -> None:
    line = "6,1,2,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=4711, name=python, Ch 7"
    log, other = mask([row("kmsg", "Records()", [line]), row(NVML, "Lines()", [line])])
    assert log["answer"] == [line.replace("4711", "<masked>").replace("python", "<masked>")]
    assert other["answer"] == [line]


RAS = {
    "host": "10.1.2.3", "address": "10.1.2.3:28028", "open": True, "uid": 1001,
    "ranks": [{"host": "10.1.2.4", "uid": 0, "rank": 3}],
}  # fmt: skip


@each(
    ("why", "change", "told"),
    [
        ("all of it", {}, {"host": "192.0.2.2", "address": "192.0.2.2:28028", "uid": 1000}),
        ("a port that nobody may reach", {"open": False},
         {"host": "192.0.2.2", "address": "10.1.2.3:28028", "uid": 1000}),
        ("of all addresses", {"address": "0.0.0.0:28028"},
         {"host": "192.0.2.2", "address": "0.0.0.0:28028", "uid": 1000}),
        ("of all addresses, version 6", {"address": "[::]:28028"},
         {"host": "192.0.2.2", "address": "[::]:28028", "uid": 1000}),
        ("another address", {"address": "10.9.9.9:1"},
         {"host": "192.0.2.2", "address": "192.0.2.3:1", "uid": 1000}),
        ("no host", {"host": None}, {"host": None, "address": "192.0.2.2:28028", "uid": 1000}),
        ("no user", {"uid": None}, {"host": "192.0.2.2", "address": "192.0.2.2:28028", "uid": None}),
    ],
)  # fmt: skip
def test_what_ras_says_has_no_hosts_and_no_users(
    why: str, change: dict[str, Any], told: dict[str, Any]
) -> None:
    (masked,) = mask([row("ras", "Reports()", [{**RAS, **change}])])
    (found,) = masked["answer"]
    assert {name: found[name] for name in told} == told, why
    assert found["ranks"] == [{"host": "192.0.2.1", "uid": 0, "rank": 3}]
    assert found["open"] == {**RAS, **change}["open"]


def test_the_guid_of_a_card_is_one_name_however_it_is_written() -> None:
    rows = [
        row(SYSFS, "read /sys/class/infiniband/mlx5_0/node_guid", "a1b2:c3d4:e5f6:a7b8"),
        row("command", "ibstat()", {"status": 0, "out": "Node GUID: 0xa1b2c3d4e5f6a7b8", "err": ""}),
    ]
    card, listed = mask(rows)
    assert listed["answer"]["out"] == f"Node GUID: 0x{card['answer'].replace(':', '')}"
