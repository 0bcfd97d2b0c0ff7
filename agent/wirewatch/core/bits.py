"""Decoding of packed NVML values. Source: nvml.h (NVIDIA/go-nvml) and pynvml 13; DCGM for the BER packing."""

from collections.abc import Mapping

CLOCK_REASONS: Mapping[str, int] = {
    "gpu_idle": 0x1,
    "applications_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
    "board_limit": 0x200,
    "reliability": 0x400,
}

FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
FABRIC_SUMMARIES = ("not_supported", "healthy", "unhealthy", "limited_capacity")
RECOVERY_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)

_TRUE_IS_BAD: Mapping[str, int] = {
    "degraded_bandwidth": 0,
    "route_recovery": 2,
    "route_unhealthy": 4,
    "access_timeout_recovery": 6,
}
_CONFIGURATIONS = {
    2: "incorrect_sysguid",
    3: "incorrect_chassis",
    4: "no_partition",
    5: "insufficient_nvlinks",
    6: "incompatible_firmware",
    7: "invalid_location",
    8: "invalid_state",
}


def ber(raw: int) -> float:
    """Bit error rate from its packing: exponent in bits 0-7, mantissa in bits 8-11.

    Mantissa 15 with exponent 255 is the "nothing measured" sentinel and 0 means zero: both give 0.0.
    """
    mantissa, exponent = raw >> 8 & 0xF, raw & 0xFF
    return 0.0 if (mantissa, exponent) == (15, 255) else mantissa * 10.0**-exponent


def fabric_troubles(mask: int) -> tuple[str, ...]:
    """What a fabric health mask complains of.

    In the four yes/no fields 0 is "not supported", 1 is bad, 2 is good; in the configuration field 1 is
    good. So a mask of zero is "not supported", and a healthy mask is not zero.
    """
    bad = [name for name, shift in _TRUE_IS_BAD.items() if mask >> shift & 0x3 == 1]
    configuration = mask >> 8 & 0xF
    if configuration > 1:
        bad.append(_CONFIGURATIONS.get(configuration, f"configuration_{configuration}"))
    return tuple(bad)
