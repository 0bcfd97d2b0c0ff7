"""The policy as data: what can be meant."""

import pytest

from wirewatch.verdict.drift.watch import DriftPolicy


def test_the_defaults_can_be_meant() -> None:
    policy = DriftPolicy()
    assert policy.wrong() == ""
    assert (policy.confirm, policy.learn, policy.replaced_for) == (2, 3, 86400.0)


@pytest.mark.parametrize(
    ("policy", "wrong"),
    [
        (DriftPolicy(replaced_for=-1.0), "seconds must not be below 0: 'replaced_for'"),
        (DriftPolicy(replaced_for=float("nan")), "seconds must not be below 0: 'replaced_for'"),
        (DriftPolicy(replaced_for=float("inf")), "seconds must not be below 0: 'replaced_for'"),
        (DriftPolicy(confirm=0), "confirm must be at least 1"),
        (DriftPolicy(confirm=0, learn=0), "confirm must be at least 1; learn must be at least 1"),
        (DriftPolicy(confirm=1, learn=1, replaced_for=0.0), ""),
    ],
)
def test_what_cannot_be_meant(policy: DriftPolicy, wrong: str) -> None:
    assert policy.wrong() == wrong
