"""How long the worker's processes wait for one another: a change of any is meant."""

from wirewatch.worker import kernels, process


def test_how_soon_processes_notice_and_how_long_they_wait() -> None:
    assert (process.WATCH, process.NOTICE, process.PARTING, process._POLL) == (0.5, 2.0, 2.0, 0.005)  # noqa: SLF001


def test_an_old_gpu_multiplies_a_quarter_of_a_new_one_s_rows_and_columns() -> None:
    """Without tensor cores a product of 4096 rows takes sixty times as long there."""
    assert kernels.GEMM_SIDE_OLD == kernels.GEMM_SIDE // 4 == 1024
