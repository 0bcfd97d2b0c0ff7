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
from dashboards.shared import COLOURED, COUNTED, GPU_HERE

_ACTIVE = "max by (gpu,reason) (wirewatch_clocks_event_active{GPUS})"
_FAULTY = "max by (gpu,reason) (wirewatch_clocks_event_active{GPUS,reason=~'hw_.*|sw_thermal_slowdown'})"
_DOWN = f"{_FAULTY} * 2 or {_ACTIVE}"

HELD = Row(
    "Clocks, heat, memory",
    (
        Series(
            "Share of time held down, by reason",
            "The part of the time for which each reason held the clocks of the worst GPU down. "
            "`sw_power_cap` is normal at full load; the `hw_` ones and heat are not.",
            (
                Query(
                    "max by (reason) (rate(wirewatch_clocks_event_seconds_total{GPUS}[$__rate_interval]))",
                    "{{reason}}",
                ),
            ),
            "percentunit",
            Limits("green", ((0.1, "orange"),)),
            8,
            11,
            highest=1,
        ),
        Matrix(
            "Held down now",
            "Which reasons hold the GPU's clocks down. Those in colour are faults; an idle GPU, the "
            "power cap and application clocks are normal.",
            _DOWN,
            "reason",
            "gpu",
            "none",
            COLOURED,
            words={"0": ("", "transparent"), "1": ("yes", "transparent"), "2": ("held", "orange")},
            width=16,
            height=11,
            first=170,
            misleads="`sw_power_cap` at full load and `gpu_idle` are normal.",
        ),
        Series(
            "Power",
            "Power draw of each GPU. One lower than its peers in the same job waits, or is held down.",
            (Query("max by (gpu) (wirewatch_gpu_power_watts{GPUS})", "GPU {{gpu}}"),),
            "watt",
            NoLimit("it depends on the job and the product"),
            8,
            misleads="an idle GPU draws little: that is no fault.",
        ),
        Series(
            "Temperature",
            "The hottest sensor of each GPU.",
            (Query("max by (gpu) (wirewatch_gpu_temperature_celsius{GPUS})", "GPU {{gpu}}"),),
            "celsius",
            NoLimit("each product has its own limit, which it reports as a throttle reason"),
            8,
        ),
        Table(
            "XIDs",
            "Errors of the driver since the machine was started; what each number means is in "
            "docs/METRICS.md.",
            (
                Value(
                    "events", "max by (gpu,xid) (wirewatch_xid_events_total{HERE})", "none", AT_MOST_NONE, 90
                ),
                Label("gpu", 60),
                Label("xid", 80),
                Value(
                    "last of this GPU",
                    "max by (gpu) (wirewatch_xid_last_event_timestamp_seconds{HERE} > 0) * 1000",
                    "dateTimeFromNow",
                    NoLimit("a moment"),
                ),
            ),
            8,
            order=(("events", True),),
            blank=Blank.XID,
            misleads="it counts since the machine was started, what was repaired since too.",
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
                    "sum by (gpu) (max by (gpu,uuid,location) "
                    '(wirewatch_ecc_errors_total{GPUS,kind="uncorrected"}))',
                    "none",
                    AT_MOST_NONE,
                ),
                Value(
                    "corrected",
                    "sum by (gpu) (max by (gpu,uuid,location) "
                    '(wirewatch_ecc_errors_total{GPUS,kind="corrected"}))',
                    "none",
                    COUNTED,
                ),
                Value(
                    "remapped rows",
                    "sum by (gpu) (max by (gpu,uuid,kind) (wirewatch_rows_remapped{GPUS}))",
                    "none",
                    COUNTED,
                ),
                Value(
                    "remap pending", "max by (gpu) (wirewatch_row_remap_pending{GPUS})", "none", SOME_IS_ODD
                ),
                Value(
                    "remap failed", "max by (gpu) (wirewatch_row_remap_failed{GPUS})", "none", AT_MOST_NONE
                ),
                Value(
                    "driver asks",
                    'max by (gpu) (wirewatch_gpu_recovery_action{GPUS,action!="none"})',
                    "none",
                    AT_MOST_NONE,
                    words={"0": ("nothing", ""), "1": ("recovery", "red")},
                ),
            ),
            24,
            10,
            misleads="corrected errors cost nothing; a remapped row is a repair that has been done.",
        ),
    ),
)
