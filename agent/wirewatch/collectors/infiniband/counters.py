"""Which counters of a port are read, what they mean, and where they stop counting.

Sources: the kernel's ABI document sysfs-class-infiniband and drivers/infiniband/core/sysfs.c (widths of the
classic counters, which stop at their highest value), mlx5's and EFA's hw_counters; limits as NVSentinel's
nic-health-monitor and EKS' node monitoring agent have them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from wirewatch.core.policy import ErrorLimit


@dataclass(frozen=True, slots=True)
class PortCounter:
    """`bits`: width after which a classic counter sticks, 0 for none; `limit` None: not judged."""

    path: str
    bits: int = 0
    limit: ErrorLimit | None = None

    def saturated(self, value: int) -> bool:
        """Whether it stands at its ceiling; firmware that counts further is past it and counts on."""
        return bool(self.bits) and value == (1 << self.bits) - 1


LINK_DOWNED = PortCounter("counters/link_downed", 8, ErrorLimit(1))

ERRORS: Mapping[str, PortCounter] = {
    # IBTA's limit for a link is a bit error rate of 1e-12, which is 120 symbol errors an hour.
    "symbol": PortCounter("counters/symbol_error", 16, ErrorLimit(120)),
    "link_recovery": PortCounter("counters/link_error_recovery", 8, ErrorLimit(5, 60.0)),
    "receive": PortCounter("counters/port_rcv_errors", 16, ErrorLimit(600, 60.0)),
    "receive_remote_physical": PortCounter("counters/port_rcv_remote_physical_errors", 16),
    "transmit_discards": PortCounter("counters/port_xmit_discards", 16, ErrorLimit(6000, 60.0)),
    "local_integrity": PortCounter("counters/local_link_integrity_errors", 4, ErrorLimit(1)),
    "buffer_overrun": PortCounter("counters/excessive_buffer_overrun_errors", 4, ErrorLimit(1)),
    "rnr_retry": PortCounter("hw_counters/rnr_nak_retry_err", 0, ErrorLimit(1)),
    # A rank that died elsewhere makes these too.
    "ack_timeout": PortCounter("hw_counters/local_ack_timeout_err", 0, ErrorLimit(60, 60.0)),
    "slow_restart": PortCounter("hw_counters/roce_slow_restart", 0, ErrorLimit(600, 60.0)),
    "efa_receive_drops": PortCounter("hw_counters/rx_drops", 0, ErrorLimit(6000, 60.0)),
    "efa_rdma_read": PortCounter("hw_counters/rdma_read_wr_err", 0, ErrorLimit(6000, 60.0)),
    "efa_rdma_write": PortCounter("hw_counters/rdma_write_wr_err", 0, ErrorLimit(6000, 60.0)),
    "efa_unresponsive_remote": PortCounter(
        "hw_counters/unresponsive_remote_events", 0, ErrorLimit(6000, 60.0)
    ),
    "efa_impaired_connection": PortCounter(
        "hw_counters/impaired_remote_conn_events", 0, ErrorLimit(6000, 60.0)
    ),
    "efa_retransmits": PortCounter("hw_counters/retrans_pkts", 0, ErrorLimit(60000, 60.0)),
}
"""Faults of a wire or of who sits at its ends."""

CONGESTION: Mapping[str, str] = {
    "wait": "counters/port_xmit_wait",
    "ecn_marked": "hw_counters/np_ecn_marked_roce_packets",
    "cnp_sent": "hw_counters/np_cnp_sent",
    "cnp_handled": "hw_counters/rp_cnp_handled",
    "out_of_sequence": "hw_counters/out_of_sequence",
    "adaptive_retransmits": "hw_counters/roce_adp_retrans",
}
"""Signs of a full network: no fault of this node, and never judged."""

WORDS = ("counters/port_xmit_data", "counters/port_rcv_data")
"""Data sent and received in words of 4 bytes."""
EFA_BYTES = ("hw_counters/tx_bytes", "hw_counters/rx_bytes")
"""The same in bytes, where a device has no classic counters."""

KNOWN = frozenset(
    {*WORDS, *EFA_BYTES, *CONGESTION.values(), LINK_DOWNED.path, *(c.path for c in ERRORS.values())}
)
