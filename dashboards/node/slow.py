"""Which GPU or pair is slow: by the probe, and by the job that runs."""

from dashboards.parts import Blank, Label, Limits, Matrix, NoLimit, Query, Row, Series, Table, Text, Value
from dashboards.shared import OF_ITS_KIND

_PEER = "max by (src,dst) (wirewatch_peer_bandwidth_bytes_per_second{HERE})"
_HOST = "max by (gpu,direction) (wirewatch_probe_host_link_bytes_per_second{{GPUS,direction{}'all_.*'}})"
_SCORE = "max by (gpu,signal) (wirewatch_straggler_score{GPUS})"

SLOW = Row(
    "Slow GPUs and links",
    (
        Matrix(
            "Peer matrix, of its median",
            "Copies from each GPU (row) to each other (column), against the median of all pairs of "
            "this node: a slow pair, a slow row (source) or a slow column (destination) stands out.",
            f"{_PEER} / on () group_left() quantile(0.5, {_PEER})",
            "src",
            "dst",
            "percentunit",
            Limits("red", ((0.75, "orange"), (0.9, "green"))),
            width=12,
            height=10,
            decimals=0,
            blank=Blank.PROBE,
        ),
        Matrix(
            "Peer matrix, GB/s",
            "The same as bandwidths in GB/s, while both directions of disjoint pairs run.",
            f"{_PEER} / 1e9",
            "src",
            "dst",
            "none",
            NoLimit("what is right depends on the wires; the matrix beside it compares"),
            width=12,
            height=10,
            decimals=0,
            blank=Blank.PROBE,
        ),
        Matrix(
            "Straggler scores",
            "How much slower each part of a GPU is than its own history or its peers, in standard "
            "deviations of the noise: above 4, and costly enough, is a straggler.",
            _SCORE,
            "signal",
            "gpu",
            "none",
            Limits("green", ((4, "orange"), (10, "red"))),
            width=12,
            height=10,
            first=100,
            decimals=1,
            blank=Blank.PROBE,
            misleads="a score counts standard deviations of the noise, not lost bandwidth.",
        ),
        Series(
            "Highest straggler score by GPU",
            "The highest of a GPU's signals over time.",
            (Query("max by (gpu) (wirewatch_straggler_score{GPUS})", "GPU {{gpu}}"),),
            "none",
            Limits("green", ((4, "orange"), (10, "red"))),
            height=10,
            lowest=None,
            blank=Blank.PROBE,
        ),
        Series(
            "Host links",
            "Copies between each GPU and pinned memory of the host, alone, by direction; both: each way at "
            "once. A GPU below its siblings has a bad riser, slot or NUMA node.",
            (Query(_HOST.format("!~"), "GPU {{gpu}} {{direction}}"),),
            "Bps",
            OF_ITS_KIND,
            blank=Blank.PROBE,
        ),
        Series(
            "Host links while all GPUs copy",
            "The same while all GPUs copy at once. GPUs that share an uplink get less, by design: compare "
            "with the past.",
            (Query(_HOST.format("=~"), "GPU {{gpu}} {{direction}}"),),
            "Bps",
            OF_ITS_KIND,
            blank=Blank.PROBE,
        ),
        Table(
            "Named as slow",
            "By name, confirmed in two of three probes.",
            (
                Value(
                    "score",
                    f"{_SCORE} and on (gpu,signal) max by (gpu,signal) (wirewatch_straggler{{GPUS}}) == 1",
                    "none",
                    Limits("orange", ((20, "red"),)),
                    90,
                    decimals=1,
                ),
                Label("gpu", 60),
                Label("signal"),
            ),
            order=(("score", True),),
            blank=Blank.STRAGGLER,
        ),
        Series(
            "Hint from the running job",
            "1 for the GPU of a job in lockstep that never waits: a hint without a verdict, which "
            "brings the next probe forward.",
            (Query("max by (gpu) (wirewatch_straggler_hint{GPUS})", "GPU {{gpu}}"),),
            "none",
            NoLimit("a hint is no verdict"),
            highest=1,
            blank=Blank.LOCKSTEP,
            misleads="a job with uneven work looks the same.",
        ),
    ),
)

MISLEADING = Row(
    "Utilisation misleads: read it beside what the GPU really does",
    (
        Series(
            "Utilisation (misleading)",
            "Share of time in which some kernel ran. It reads 100 % on every GPU of a job that waits "
            "for one slow GPU, so it says neither that work is done nor that all is well. It is here "
            "to be compared with its two neighbours.",
            (Query("max by (gpu) (wirewatch_gpu_utilization_ratio{GPUS})", "GPU {{gpu}}"),),
            "percentunit",
            NoLimit("100 % of it may be waiting"),
            8,
            highest=1,
        ),
        Series(
            "SM active",
            "Share of the SMs' time in which they had work, from NVML's GPM. In a job in lockstep "
            "the straggler's is high while its peers' falls: they wait.",
            (Query("max by (gpu) (wirewatch_gpu_sm_busy_ratio{GPUS})", "GPU {{gpu}}"),),
            "percentunit",
            NoLimit("it depends on the job"),
            8,
            highest=1,
            blank=Blank.LOCKSTEP,
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
            "Bps",
            OF_ITS_KIND,
            8,
        ),
        Text(
            "How to read these three",
            "Why utilisation stands first.",
            "All at 100 % utilisation, one GPU's SMs busier than the rest, NVLink low and equal: "
            "**one GPU is slow and the others wait for it**. All SMs busy and NVLink at its usual "
            "rate: the job works. SM active needs Hopper or later.",
        ),
    ),
    collapsed=True,
)
