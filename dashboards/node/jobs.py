"""A job that runs: what it gets of the wires, who waits, who is waited for, and what its GPUs really do."""

from dashboards.parts import RATIO, Blank, NoLimit, Query, Row, Series
from dashboards.shared import OF_ITS_KIND

_WIRE = "max by (op,size,ranks) ({}{{HERE}})"
_NAMED = "{{op}} {{size}} on {{ranks}}"
_JUDGED = NoLimit("it is judged by the ratio")
_OF_JOB = NoLimit("it depends on the job")


def _of_gpu(
    title: str, about: str, expr: str, limit: NoLimit, blank: Blank | None, misleads: str = ""
) -> Series:
    """A share by GPU."""
    query = Query(f"max by (gpu) ({expr}{{GPUS}})", "GPU {{gpu}}")
    return Series(
        title, about, (query,), "percentunit", limit, 8, 7, highest=1, blank=blank, misleads=misleads
    )


JOBS = Row(
    "The job that runs",
    (
        _of_gpu(
            "Utilisation (misleading)",
            "Share of time in which some kernel ran. It reads 100 % on every GPU of a job that waits "
            "for one slow GPU, so it says neither that work is done nor that all is well. All at 100 %, one "
            "GPU's SMs busier than the rest, NVLink low and equal: one GPU is slow and the others wait.",
            "wirewatch_gpu_utilization_ratio", NoLimit("100 % of it may be waiting"), None,
        ),
        _of_gpu(
            "SM active",
            "Share of the SMs' time in which they had work, from NVML's GPM. In a job in lockstep "
            "the straggler's is high while its peers' falls: they wait.",
            "wirewatch_gpu_sm_busy_ratio", _OF_JOB, Blank.LOCKSTEP,
        ),
        Series(
            "NVLink sent",
            "Payload bytes sent over all NVLinks of each GPU. In a data-parallel job all lines are alike.",
            (
                Query(
                    "max by (gpu) (rate(wirewatch_nvlink_transmit_bytes_total{GPUS}[$__rate_interval]))",
                    "GPU {{gpu}}",
                ),
            ),
            "Bps", OF_ITS_KIND, 8, 7,
        ),
        _of_gpu(
            "Waiting for other GPUs",
            "Share of the time for which a GPU's collectives wait for others. All but one high: that one is "
            "late.",
            "wirewatch_job_wait_ratio", _OF_JOB, Blank.JOBS,
        ),
        _of_gpu(
            "Waited for",
            "Share of a job's collectives in which the others waited for this GPU. A healthy job has no GPU "
            "that is always the last.",
            "wirewatch_job_late_ratio", NoLimit("it matters where the others wait for long"), Blank.JOBS,
            "work that is uneven on purpose (a pipeline) makes one GPU late too.",
        ),
        _of_gpu(
            "Hint from the running job",
            "1 for the GPU of a job in lockstep that never waits: a hint without a verdict, which "
            "brings the next probe forward.",
            "wirewatch_straggler_hint", NoLimit("a hint is no verdict"), Blank.LOCKSTEP,
            "a job with uneven work looks the same.",
        ),
        Series(
            "Busbw of jobs over expected",
            "What the worst running job gets of what NCCL's defaults should give on this topology, by "
            "collective, size in bytes and ranks. Computing beside collectives lowers it on healthy nodes "
            "too: the finding `jobs.slow_wire` takes a second witness.",
            (Query("min by (op,size,ranks) (wirewatch_job_busbw_ratio{HERE})", _NAMED),),
            "percentunit", RATIO, 8, 7, blank=Blank.JOBS,
        ),
        Series(
            "Busbw of jobs on the wire",
            "The message over the shortest duration of the local GPUs, as nccl-tests counts bus bandwidth.",
            (
                Query(_WIRE.format("wirewatch_job_busbw_bytes_per_second"), _NAMED),
                Query(_WIRE.format("wirewatch_job_expected_busbw_bytes_per_second"), f"expected: {_NAMED}"),
            ),
            "Bps", _JUDGED, 8, 7, blank=Blank.JOBS,
        ),
        Series(
            "Bytes of collectives",
            "Messages that jobs with the tap enqueue on a GPU, by collective; the busiest GPU.",
            (
                Query(
                    "max by (op) (sum by (op,gpu) (rate(wirewatch_job_bytes_total{GPUS}[$__rate_interval])))",
                    "{{op}}",
                ),
            ),
            "Bps", NoLimit("it is what jobs ask for"), 8, 7, blank=Blank.JOBS,
        ),
    ),
    collapsed=True,
)  # fmt: skip
