"""What is compared with `nvidia-smi -q -x`, and how each side is read.

An element has had several names; the candidates are tried in order, and the texts of a candidate of
several elements are added.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from proof.hardware.scrape import Scrape

Value = float | str | None
"""None stands for "not given"."""

NOT_TOLD = frozenset({"N/A", "[N/A]", "Not Supported", "Unknown Error", ""})
RECOVERY = {
    "None": "none",
    "Reset": "gpu_reset",
    "GPU Reset": "gpu_reset",
    "Reboot": "node_reboot",
    "Node Reboot": "node_reboot",
    "Drain P2P": "drain_p2p",
    "Drain and Reset": "drain_and_reset",
}
_YES = {"Active": 1.0, "Not Active": 0.0, "Yes": 1.0, "No": 0.0}
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True)
class Item:
    """One comparison; a number may be off by `absolute` or by `relative` of it, whichever is more.

    What is `restless` changes from moment to moment, also by being looked at: it must agree in one of the
    looks. The others must agree in every look.
    """

    name: str
    candidates: Sequence[Sequence[str]]
    read: Callable[[str], Value]
    ours: Callable[[Scrape, str], Value]
    absolute: float = 0.0
    relative: float = 0.0
    restless: bool = False

    def theirs(self, texts: Sequence[str]) -> Value:
        values = [self.read(text) for text in texts]
        numbers = [v for v in values if isinstance(v, float)]
        if len(numbers) == len(values):
            return sum(numbers)
        return values[0] if len(values) == 1 else None


def number(text: str) -> Value:
    found = _NUMBER.match(text)
    return float(found[0]) if found and text not in NOT_TOLD else None


def yes(text: str) -> Value:
    return _YES.get(text)


def micros(text: str) -> Value:
    value = number(text)
    return value * 1e-6 if isinstance(value, float) else None


def recovery(text: str) -> Value:
    return RECOVERY.get(text, text)


def fabric(text: str) -> Value:
    """None where there is no fabric: we have no series then."""
    return None if text in NOT_TOLD else text.lower().replace(" ", "_")


def _series(name: str, **labels: str) -> Callable[[Scrape, str], Value]:
    return lambda scrape, uuid: scrape.value(name, uuid=uuid, **labels)


def _active(name: str, label: str) -> Callable[[Scrape, str], Value]:
    return lambda scrape, uuid: scrape.active(name, label, uuid=uuid)


def _reason(ours: str, theirs: str) -> Item:
    names = (f"clocks_event_reason_{theirs}", f"clocks_throttle_reason_{theirs}")
    groups = ("clocks_event_reasons", "clocks_throttle_reasons")
    paths = [[f"{group}/{name}"] for group, name in zip(groups, names, strict=True)]
    return Item(
        f"clocks event {ours}", paths, yes, _series("clocks_event_active", reason=ours), restless=True
    )


def _reason_time(ours: str, *theirs: str) -> Item:
    group = "clocks_event_reasons_counters"
    paths = [[f"{group}/{group}_{name}"] for name in theirs]
    series = _series("clocks_event_seconds_total", reason=ours)
    return Item(f"clocks event seconds {ours}", paths, micros, series, absolute=0.01)


def _ecc(ours: str, series: str, kind: str, location: str) -> Item:
    short = f"{location}_{kind.replace('corrected', 'correctable')}"
    parts = [f"ecc_errors/{ours}/{short}_parity", f"ecc_errors/{ours}/{short}_secded"]
    candidates = [[f"ecc_errors/{ours}/{short}"], parts]
    return Item(
        f"ECC {ours} {location} {kind}", candidates, number, _series(series, kind=kind, location=location)
    )


def _one(name: str, series: str, *paths: str, **labels: str) -> Item:
    return Item(name, [[p] for p in paths], number, _series(series, **labels))


def _temperature(sensor: str, theirs: str) -> Item:
    item = _one(f"temperature {sensor}", "gpu_temperature_celsius", f"temperature/{theirs}", sensor=sensor)
    return replace(item, absolute=2.0, restless=True)


def _power() -> Item:
    groups, draws = (
        ("gpu_power_readings", "power_readings"),
        ("average_power_draw", "power_draw", "instant_power_draw"),
    )
    item = _one("power", "gpu_power_watts", *(f"{group}/{draw}" for group in groups for draw in draws))
    return replace(item, absolute=3.0, relative=0.1, restless=True)


REASONS = [
    _reason("gpu_idle", "gpu_idle"),
    _reason("applications_clocks", "applications_clocks_setting"),
    _reason("sw_power_cap", "sw_power_cap"),
    _reason("hw_slowdown", "hw_slowdown"),
    _reason("hw_thermal_slowdown", "hw_thermal_slowdown"),
    _reason("hw_power_brake", "hw_power_brake_slowdown"),
    _reason("sync_boost", "sync_boost"),
    _reason("sw_thermal_slowdown", "sw_thermal_slowdown"),
    _reason("display_clocks", "display_clocks_setting"),
    _reason_time("sw_power_cap", "sw_power_cap"),
    _reason_time("sync_boost", "sync_boost"),
    _reason_time("sw_thermal_slowdown", "sw_therm_slowdown", "sw_thermal_slowdown"),
    _reason_time("hw_thermal_slowdown", "hw_therm_slowdown", "hw_thermal_slowdown"),
    _reason_time("hw_power_brake", "hw_power_brake", "hw_power_brake_slowdown"),
]

ERRORS = [
    *(
        _ecc(theirs, series, kind, location)
        for theirs, series in (("volatile", "ecc_errors_total"), ("aggregate", "ecc_errors_lifetime"))
        for location in ("sram", "dram")
        for kind in ("corrected", "uncorrected")
    ),
    _one("remapped rows correctable", "rows_remapped", "remapped_rows/remapped_row_corr", kind="corrected"),
    _one(
        "remapped rows uncorrectable", "rows_remapped", "remapped_rows/remapped_row_unc", kind="uncorrected"
    ),
    Item("row remap pending", [["remapped_rows/remapped_row_pending"]], yes, _series("row_remap_pending")),
    Item("row remap failed", [["remapped_rows/remapped_row_failure"]], yes, _series("row_remap_failed")),
    Item("recovery action", [["gpu_recovery_action"]], recovery, _active("gpu_recovery_action", "action")),
    _one("PCIe replays", "pcie_replays_total", "pci/replay_counter"),
]

_GENERATION = "pci/pci_gpu_link_info/pcie_gen"
_WIDTH = "pci/pci_gpu_link_info/link_widths"

STATES = [
    replace(_one("PCIe generation", "pcie_generation", f"{_GENERATION}/current_link_gen"), restless=True),
    _one("PCIe generation max", "pcie_generation_max", f"{_GENERATION}/max_link_gen"),
    _one("PCIe width", "pcie_width", f"{_WIDTH}/current_link_width"),
    _one("PCIe width max", "pcie_width_max", f"{_WIDTH}/max_link_width"),
    _temperature("core", "gpu_temp"),
    _temperature("memory", "memory_temp"),
    _power(),
    Item("fabric state", [["fabric/state"]], fabric, _active("fabric_state", "state")),
]

ITEMS = [*REASONS, *ERRORS, *STATES]
