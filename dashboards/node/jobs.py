"""Running jobs that carry the tap: what they get of the wires, who waits, and who is waited for."""

from dashboards.parts import RATIO, Blank, NoLimit, Query, Row, Series

_WIRE = "max by (op,size,ranks) ({}{{HERE}})"
_NAMED = "{{op}} {{size}} on {{ranks}}"
_JUDGED = NoLimit("it is judged by the ratio")

JOBS = Row(
    "Running jobs",
    (
        Series(
            "Busbw of jobs over expected",
            "What the worst running job gets of what NCCL's defaults should give on this topology, by "
            "collective, size in bytes and ranks. Computing beside collectives lowers it on healthy nodes "
            "too: the finding `jobs.slow_wire` takes a second witness.",
            (Query("min by (op,size,ranks) (wirewatch_job_busbw_ratio{HERE})", _NAMED),),
            "percentunit",
            RATIO,
            blank=Blank.JOBS,
        ),
        Series(
            "Busbw of jobs on the wire",
            "The message over the shortest duration of the local GPUs, as nccl-tests counts bus bandwidth.",
            (
                Query(_WIRE.format("wirewatch_job_busbw_bytes_per_second"), _NAMED),
                Query(_WIRE.format("wirewatch_job_expected_busbw_bytes_per_second"), f"expected: {_NAMED}"),
            ),
            "Bps",
            _JUDGED,
            blank=Blank.JOBS,
        ),
        Series(
            "Waiting for other GPUs",
            "Share of the time for which a GPU's collectives wait for others. All but one high: that one is "
            "late.",
            (Query("max by (gpu) (wirewatch_job_wait_ratio{GPUS})", "GPU {{gpu}}"),),
            "percentunit",
            NoLimit("how much is normal depends on the job"),
            8,
            blank=Blank.JOBS,
        ),
        Series(
            "Waited for",
            "Share of a job's collectives in which the others waited for this GPU. A healthy job has no GPU "
            "that is always the last.",
            (Query("max by (gpu) (wirewatch_job_late_ratio{GPUS})", "GPU {{gpu}}"),),
            "percentunit",
            NoLimit("it matters where the others wait for long"),
            8,
            highest=1,
            blank=Blank.JOBS,
            misleads="work that is uneven on purpose (a pipeline) makes one GPU late too.",
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
            "Bps",
            NoLimit("it is what jobs ask for"),
            8,
            blank=Blank.JOBS,
        ),
    ),
    collapsed=True,
)
