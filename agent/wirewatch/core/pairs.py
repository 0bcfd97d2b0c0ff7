"""Words for the measurements between pairs of nodes, and for the parts that can be slow."""

from enum import StrEnum

FAILED_LOSS = 0.3
"""A part is FAILED when it has lost at least this share of its speed."""


class Way(StrEnum):
    """In which direction a part is slow; TOGETHER: in collectives alone, which have none."""

    SENDS = "sends"
    RECEIVES = "receives"
    TOGETHER = "together"


class PartKind(StrEnum):
    """Kinds of parts that can be slow, the widest first."""

    RAIL = "rail"
    LEAF = "leaf"
    NODE = "node"
    PAIR = "pair"


class Measure(StrEnum):
    """Measurements of a pair: sends on each rail alone, sends on all rails at once, an all_reduce of both."""

    RAILS = "rails"
    SEND = "send"
    ALL_REDUCE = "all_reduce"
