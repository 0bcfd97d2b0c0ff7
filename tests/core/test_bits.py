"""Packed NVML values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewatch.core.nvml import FABRIC_STATES, FABRIC_SUMMARIES, ber, fabric_troubles

HEALTHY = 2 | 2 << 2 | 2 << 4 | 2 << 6 | 1 << 8


def _packed(mantissa: int, exponent: int) -> int:
    return mantissa << 8 | exponent


def test_a_raw_error_rate_of_zero_is_zero() -> None:
    assert ber(0) == 0.0


def test_the_sentinel_for_nothing_measured_is_zero() -> None:
    assert ber(_packed(15, 255)) == 0.0


@pytest.mark.parametrize(
    ("mantissa", "exponent", "rate"), [(1, 0, 1.0), (5, 8, 5e-8), (1, 15, 1e-15), (15, 12, 15e-12)]
)
def test_an_error_rate_is_its_mantissa_times_ten_to_minus_its_exponent(
    mantissa: int, exponent: int, rate: float
) -> None:
    assert ber(_packed(mantissa, exponent)) == pytest.approx(rate, rel=1e-12)


@given(st.integers(0, 2**64 - 1))
def test_an_error_rate_is_a_number_from_zero_to_fifteen_for_any_raw_value(raw: int) -> None:
    assert 0.0 <= ber(raw) <= 15.0


def test_a_fabric_mask_that_supports_nothing_complains_of_nothing() -> None:
    assert fabric_troubles(0) == ()


def test_a_healthy_fabric_mask_is_not_zero_and_complains_of_nothing() -> None:
    assert HEALTHY != 0
    assert fabric_troubles(HEALTHY) == ()


@pytest.mark.parametrize(
    ("shift", "name"),
    [
        (0, "degraded_bandwidth"),
        (2, "route_recovery"),
        (4, "route_unhealthy"),
        (6, "access_timeout_recovery"),
    ],
)
def test_each_bad_yes_or_no_field_is_named_alone(shift: int, name: str) -> None:
    assert fabric_troubles(HEALTHY & ~(3 << shift) | 1 << shift) == (name,)


@pytest.mark.parametrize(
    ("configuration", "name"),
    [
        (2, "incorrect_sysguid"),
        (3, "incorrect_chassis"),
        (4, "no_partition"),
        (5, "insufficient_nvlinks"),
        (6, "incompatible_firmware"),
        (7, "invalid_location"),
    ],
)
def test_each_wrong_configuration_is_named(configuration: int, name: str) -> None:
    assert fabric_troubles(HEALTHY & 0xFF | configuration << 8) == (name,)


def test_a_wrong_configuration_of_next_year_is_still_told_by_its_number() -> None:
    (told,) = fabric_troubles(HEALTHY & 0xFF | 14 << 8)
    assert "14" in told


@given(st.integers(0, 2**32 - 1))
def test_any_mask_is_understood_and_a_trouble_never_hides_another(mask: int) -> None:
    troubles = fabric_troubles(mask)
    fields = [mask >> shift & 3 for shift in (0, 2, 4, 6)]
    assert len(set(troubles)) == len(troubles) == fields.count(1) + (mask >> 8 & 0xF > 1)


@pytest.mark.parametrize("names", [FABRIC_STATES, FABRIC_SUMMARIES])
def test_names_of_states_can_be_label_values(names: tuple[str, ...]) -> None:
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name.islower() for name in names)
