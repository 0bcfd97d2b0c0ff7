"""Clocks, heat and memory of the GPUs."""

from dashboards.parts import (
    AT_MOST_NONE,
    SOME_IS_ODD,
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
from dashboards.shared import COUNTED, GPU_HERE

_HELD = "max by (reason,gpu) (rate(wirewatch_clocks_event_seconds_total{GPUS}[5m]))"


def _of_gpus(metric: str, *by: str) -> str:
    return (
        f"max by (gpu) ({metric}{{GPUS}})"
        if not by
        else f"sum by (gpu) (max by (gpu,{','.join(by)}) ({metric}))"
    )


HELD = Row(
    "Clocks, heat, memory",
    (
        Matrix(
            "Share of the last five minutes held down, by reason",
            "The part of the time for which each reason held a GPU's clocks down. `sw_power_cap` is normal "
            "at full load; the `hw_` reasons and heat are not.",
            _HELD, "reason", "gpu", "percentunit", Limits("green", ((0.1, "orange"),)),
            width=10, height=7, decimals=0, first=170, misleads="`sw_power_cap` at full load is normal.",
        ),
        Series(
            "Power",
            "Power draw of each GPU. One lower than its peers in the same job waits, or is held down.",
            (Query(_of_gpus("wirewatch_gpu_power_watts"), "GPU {{gpu}}"),),
            "watt", NoLimit("it depends on the job and the product"), 7, 7,
            misleads="an idle GPU draws little: that is no fault.",
        ),
        Series(
            "Temperature",
            "The hottest sensor of each GPU.",
            (Query(_of_gpus("wirewatch_gpu_temperature_celsius"), "GPU {{gpu}}"),),
            "celsius", NoLimit("each product has its own limit, which it reports as a throttle reason"), 7, 7,
        ),
        Table(
            "Memory errors and repairs",
            "Errors since the driver was loaded, rows remapped in the GPU's life, and what the "
            "driver asks for. A pending row wants a reset when jobs have ended; a failed one wants a "
            "new board.",
            (
                GPU_HERE,
                Value(
                    "uncorrected",
                    _of_gpus('wirewatch_ecc_errors_total{GPUS,kind="uncorrected"}', "uuid", "location"),
                    "none", AT_MOST_NONE,
                ),
                Value(
                    "corrected",
                    _of_gpus('wirewatch_ecc_errors_total{GPUS,kind="corrected"}', "uuid", "location"),
                    "none", COUNTED,
                ),
                Value(
                    "remapped rows", _of_gpus("wirewatch_rows_remapped{GPUS}", "uuid", "kind"), "none",
                    COUNTED,
                ),
                Value("remap pending", _of_gpus("wirewatch_row_remap_pending"), "none", SOME_IS_ODD),
                Value("remap failed", _of_gpus("wirewatch_row_remap_failed"), "none", AT_MOST_NONE),
                Value(
                    "driver asks", 'max by (gpu) (wirewatch_gpu_recovery_action{GPUS,action!="none"})',
                    "none", AT_MOST_NONE, words={"0": ("nothing", ""), "1": ("recovery", "red")},
                ),
            ),
            16, 10, misleads="corrected errors cost nothing; a remapped row is a repair that has been done.",
        ),
        Table(
            "XIDs",
            "Errors of the driver since the machine was started; what each number means is in "
            "docs/METRICS.md.",
            (
                Value(
                    "events", "max by (gpu,xid) (wirewatch_xid_events_total{HERE})", "none", AT_MOST_NONE, 90
                ),
                Label("gpu", 60), Label("xid", 80),
                Value(
                    "last of this GPU",
                    "max by (gpu) (wirewatch_xid_last_event_timestamp_seconds{HERE} > 0) * 1000",
                    "dateTimeFromNow", NoLimit("a moment"),
                ),
            ),
            8, 10, order=(("events", True),), blank=Blank.XID,
            misleads="it counts since the machine was started, what was repaired since too.",
        ),
    ),
)  # fmt: skip
