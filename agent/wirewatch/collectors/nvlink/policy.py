"""What counts as wrong with NVLink, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from wirewatch.core.policy import ErrorLimit

DEFAULT_LIMITS: Mapping[str, ErrorLimit] = {
    # DCGM's health watch: one replay or recovery is a finding, CRC from 100 a second.
    "replay": ErrorLimit(1),
    "recovery": ErrorLimit(1),
    "crc": ErrorLimit(6000, 60.0),
    "crc_data": ErrorLimit(6000, 60.0),
    "ecc_data": ErrorLimit(1),
    # NVLink 5: recoveries and malformed traffic; symbol errors are normal on PAM4 and judged by BER.
    "recovery_successful": ErrorLimit(1),
    "recovery_failed": ErrorLimit(1),
    "malformed": ErrorLimit(1),
    "buffer_overrun": ErrorLimit(1),
    "local_integrity": ErrorLimit(1),
}


@dataclass(frozen=True, slots=True)
class NvlinkPolicy:
    """`confirm`: polls in a row before a link or fabric fault is FAILED; `slow_ratio` of the usual rate."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    confirm: int = 3
    slow_ratio: float = 0.9
    effective_ber: float = 1e-12
    error_limits: Mapping[str, ErrorLimit] = field(default_factory=dict)

    def limit(self, kind: str) -> ErrorLimit | None:
        """The operator's limit for a kind of error, else ours; None when the kind is not judged."""
        return self.error_limits.get(kind) or DEFAULT_LIMITS.get(kind)
