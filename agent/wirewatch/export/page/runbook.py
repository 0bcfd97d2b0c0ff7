"""Where docs/runbook.md tells of a rule: its headings, as Markdown readers make anchors of them."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

SHARED: Mapping[str, Sequence[str]] = {
    "NVLink errors": ("nvlink.*_errors",),
    "fabric.state, fabric.status": ("fabric.state", "fabric.status"),
    "Fabric health": (
        "fabric.access_timeout_recovery", "fabric.degraded_bandwidth", "fabric.route_*", "fabric.summary",
    ),
    "Fabric configuration": ("fabric.*",),
    "Errors of the other end": (
        "infiniband.ack_timeout_errors", "infiniband.rnr_retry_errors",
        "infiniband.efa_impaired_connection_errors", "infiniband.efa_unresponsive_remote_errors",
    ),
    "Errors of a port": ("infiniband.*_errors",),
    "XIDs of NVLink": ("xid.74", "xid.136", "xid.14[4-9]", "xid.150"),
    "XIDs of memory": ("xid.48", "xid.63", "xid.64", "xid.94", "xid.95", "xid.140"),
    "xid.119, xid.120": ("xid.119", "xid.120"),
    "xid.79": ("xid.79",),
    "xid.154": ("xid.154",),
    "xid.*": ("xid.*[0-9]",),
    "sxid.*": ("sxid.*",),
    "topology.gpu_replaced, topology.nic_replaced": ("topology.gpu_replaced", "topology.nic_replaced"),
    "<collector>.blind": ("*.blind",),
}  # fmt: skip
"""Headings that are not the rule's own name, with patterns of their rules; the first that fits."""
_DROPPED = re.compile(r"[^a-z0-9_ -]")


def heading(rule: str) -> str:
    """The heading under which a rule is explained."""
    shared = (title for title, rules in SHARED.items() if any(fnmatchcase(rule, one) for one in rules))
    return next(shared, rule)


def anchor(title: str) -> str:
    """The anchor of a heading."""
    return _DROPPED.sub("", title.lower()).replace(" ", "-")


def link(base: str, rule: str) -> str:
    """The address of a rule's entry below that of the page; empty where the page has none."""
    return f"{base.partition('#')[0]}#{anchor(heading(rule))}" if base else ""
