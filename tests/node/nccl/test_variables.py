"""Names that NCCL reads: since when, until when, and what a wrong name is meant for."""

from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from wirewatch.nccl.settings import SLOWING
from wirewatch.nccl.variables import meant, reader, variable, version


@each(
    ("name", "since", "number"),
    [
        ("NCCL_BUFFSIZE", (2, 3), True), ("NCCL_ALGO", (2, 5), False),
        ("NCCL_IB_ROCE_VERSION_NUM", (2, 21), True),
        ("NCCL_SOCKET_NTHREADS", (2, 4, 8), True), ("NCCL_NET_GDR_LEVEL", (2, 4), False),
        ("NCCL_CTA_POLICY", (2, 27), False), ("NCCL_IB_OOO_RQ", (2, 30), True), ("NCCL_DEBUG", (2, 3), False),
    ],
)  # fmt: skip
def test_a_name_has_the_version_that_first_read_it(name: str, since: tuple[int, ...], number: bool) -> None:  # noqa: FBT001
    found = variable(name)
    assert found is not None
    assert (found.since, found.number, found.last) == (since, number, None)


def test_all_settings_that_slow_are_names_of_nccl() -> None:
    assert [name for name in SLOWING if variable(name) is None] == []


@each(
    ("name", "nccl", "missing"),
    [
        ("NCCL_RAS_ENABLE", "2.23.4", True), ("NCCL_RAS_ENABLE", "2.24.3", False),
        ("NCCL_IB_GDR_LEVEL", "2.28.9", True), ("NCCL_MNNVL", "2.20.5", False),
        ("NCCL_MNNVL", "2.21.5", True),
        ("NCCL_DEBUG", "2.1.15", False), ("NCCL_DEV_API_JIT", "2.30", False),
        ("NCCL_DEV_API_JIT", "2.30.4", True),
        ("NCCL_SHM_MEMCPY_MODE", "2.30.4", False), ("NCCL_SHM_MEMCPY_MODE", "2.30.7", True),
    ],
)  # fmt: skip
def test_a_version_reads_the_names_of_its_time(name: str, nccl: str, missing: bool) -> None:  # noqa: FBT001
    found, known = variable(name), version(nccl)
    assert found is not None
    assert known is not None
    assert found.missing_in(known) == missing


@each(
    ("name", "right"),
    [
        ("NCCL_BUFSIZE", "NCCL_BUFFSIZE"), ("NCCL_BUFFER_SIZE", "NCCL_BUFFSIZE"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("NCLL_ALGO", "NCCL_ALGO"), ("NCC_DEBUG", "NCCL_DEBUG"), ("NCCL_IB_GIDINDEX", "NCCL_IB_GID_INDEX"),
        ("NCCL_SOCKET_IF_NAME", "NCCL_SOCKET_IFNAME"), ("NCCL-DEBUG", "NCCL_DEBUG"),
        ("NCCL_IB_CROSS_NIC", "NCCL_CROSS_NIC"),
        ("NCCL_FOO", ""), ("RCCL_DEBUG", ""), ("PATH", ""), ("DEBUG", ""), ("GPU_DEBUG", ""),
        ("TORCH_NCCL_BLOCKING_WAIT", ""),
    ],
)  # fmt: skip
def test_a_wrong_name_is_meant_for_the_one_that_is_alike(name: str, right: str) -> None:
    assert meant(name) == right


@each(
    ("name", "who"),
    [
        ("NCCL_TESTS_SPLIT", "nccl-tests"), ("NCCL_FASTRAK_IFNAME", "the GPUDirect-TCPXO plugin"),
        ("NCCL_VERSION", "builds and container images"),
        ("NCCL_ASYNC_ERROR_HANDLING", "PyTorch, under its older name"),
        ("NCCL_DEBUG", ""), ("NCCL_BUFSIZE", ""),
    ],
)  # fmt: skip
def test_names_of_plugins_and_builds_are_not_wrong(name: str, who: str) -> None:
    assert reader(name) == who


@each(
    ("text", "found"),
    [
        ("2.28.9", (2, 28, 9)), ("v2.21", (2, 21)), ("2.28.9+cuda13.0", (2, 28, 9)), ("2.27.5-1", (2, 27, 5)),
        ("", None), ("28", None), ("2.", None), ("²", None), ("2.28.9999", (2, 28)),
    ],
)  # fmt: skip
def test_a_version_is_two_numbers_or_three(text: str, found: tuple[int, ...] | None) -> None:
    assert version(text) == found


@given(st.text())
def test_any_name_is_meant_for_one_of_nccls_or_none(name: str) -> None:
    right = meant(name)
    assert right == "" or variable(right) is not None
