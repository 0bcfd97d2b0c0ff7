"""NVLink: links, rates, errors."""

from dashboards.parts import (
    AT_MOST_NONE,
    IS_UP,
    Blank,
    Label,
    Limits,
    Matrix,
    NoLimit,
    Query,
    Row,
    Series,
    Table,
    Value,
)
from dashboards.shared import CLUSTER, COUNTED, GPU, NODE
from dashboards.wires import EXPECTED, FULL, GROWS, MISSING, OF_GPU, UP, WHERE, busiest

_OF_LINK = "cluster,node,gpu,link"
_PEAK = f"max by ({OF_GPU}) (wirewatch_nvlink_peak_bytes_per_second{{GPUS}})"
_DETAIL = f"max by ({OF_GPU},link) (rate(wirewatch_nvlink_link_transmit_bytes_total{{GPUS}}[30m]))"
_UNEVEN = f"topk(16, max by ({OF_GPU}) ({_DETAIL}) - min by ({OF_GPU}) ({_DETAIL}))"
_TWO_DIGITS = 'label_replace({}, "link", "0$1", "link", "([0-9])")'
"""So that columns, which are in the order of texts, are in that of links."""


def _busy(title: str, about: str, direction: str) -> Series:
    """The busiest GPUs in one direction."""
    line = busiest(
        f"wirewatch_nvlink_{direction}_bytes_total{{GPUS}}", _PEAK, OF_GPU, "{{cluster}} {{node}} GPU {{gpu}}"
    )
    return Series(
        title, about, (line,), "percentunit", FULL, height=7, reach=0.1, legend="highest",
        misleads="the twelve are chosen by their mean over the time shown: a short burst of another is not "
        "here.",
    )  # fmt: skip


NVLINK = Row(
    "NVLink",
    (
        Table(
            "NVLinks of GPUs, fewest first",
            "Links that are up, that should be, and the line rate of the active ones together each "
            "way. The fifty GPUs with most missing.",
            (
                Value("missing", f"topk(50, {MISSING})", "none", AT_MOST_NONE, 80),
                CLUSTER, NODE, GPU,
                Value("up", UP, "none", COUNTED, 60, of=OF_GPU),
                Value("expected", EXPECTED, "none", COUNTED, 85, of=OF_GPU),
                Value(
                    "line rate", _PEAK, "Bps", NoLimit("it follows from the links that are up"), 95, of=OF_GPU
                ),
            ),
            order=(("missing", True), ("node", False), ("gpu", False)),
        ),
        Table(
            "GPUs with NVLink errors in the last hour",
            "Counted since an hour ago, most first. CRC errors are corrected by sending again; replay and "
            "recovery mean a link that had to be restarted. 50 rows at most.",
            (
                Value(
                    "errors",
                    f"topk(50, sum by ({OF_GPU},kind) (increase(wirewatch_nvlink_errors_total{{GPUS}}[1h])) "
                    "> 0)",
                    "none", GROWS, 90, decimals=0,
                ),
                CLUSTER, NODE, GPU, Label("kind"),
            ),
            order=(("errors", True),), blank=Blank.ERRORS,
            misleads="kinds of one generation overlap, and errors from before a restart of the agent are not "
            "counted again.",
        ),
        _busy(
            "NVLink sent, of the line rate", "The twelve GPUs that sent most in the time shown.", "transmit"
        ),
        _busy(
            "NVLink received, of the line rate", "The twelve GPUs that received most in the time shown.",
            "receive",
        ),
    ),
)  # fmt: skip
SINGLE = Row(
    "Single links and peers",
    (
        Table(
            "Single links that are down",
            "Links that are not up, and which they are. 50 rows at most.",
            (
                Value(
                    "up", f"bottomk(50, max by ({OF_GPU},link) (wirewatch_nvlink_link_up{{GPUS}}) == 0)",
                    "none", Limits("red", ((1, "green"),)), 60, IS_UP,
                ),
                CLUSTER, NODE, GPU, Label("link", 60),
                Value(
                    "line rate",
                    f"max by ({OF_GPU},link) (wirewatch_nvlink_link_speed_bytes_per_second{{GPUS}})",
                    "Bps", NoLimit("its product has a rate, in docs/METRICS.md"), 100, of=_OF_LINK,
                ),
                Value(
                    "errors in 1 h",
                    f"sum by ({OF_GPU},link) (increase(wirewatch_nvlink_link_errors_total{{GPUS}}[1h]))",
                    "none", GROWS, decimals=0, of=_OF_LINK,
                ),
            ),
            height=7, order=(("node", False), ("gpu", False)), blank=Blank.LINK_DOWN,
        ),
        Table(
            "NVLink peers",
            "Links that are up, by what is at their other end. On a board with NVSwitches all go to "
            "`switch`. 50 rows at most.",
            (
                Value(
                    "links", "topk(50, max by (cluster,node,gpu,peer) (wirewatch_nvlink_peer_links{GPUS}))",
                    "none", COUNTED, 70,
                ),
                CLUSTER, NODE, GPU, Label("peer"),
            ),
            height=7, order=(("node", False), ("gpu", False)),
        ),
        Matrix(
            "Sent by single link",
            "Bytes a second by link over half an hour, of the sixteen GPUs whose links differ most. "
            "A link beside its GPU's others that carries less is slow or down.",
            WHERE.format(_TWO_DIGITS.format(f"{_DETAIL} and on ({OF_GPU}) {_UNEVEN}")),
            "where", "link", "Bps", NoLimit("links of one GPU are compared with each other"),
            width=24, height=9, decimals=0, first=130, blank=Blank.LINK_DETAIL,
            misleads="idle links are all equal: look at it under load.",
        ),
        Series(
            "Effective bit error rate",
            "After forward error correction, of the worst GPU.",
            (Query("max(wirewatch_nvlink_effective_ber{GPUS})", "worst"),),
            "sci", Limits("green", ((1e-12, "red"),)), 24, 6, blank=Blank.NVLINK5,
        ),
    ),
    collapsed=True,
)  # fmt: skip
