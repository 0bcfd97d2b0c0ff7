"""What can be wrong with NVLink, the fabric and the chip-to-chip link."""

from wirewatch.core.collector import CONFIRMED, DEGRADED, Rule

RULES = (
    Rule("nvlink.link_down", CONFIRMED, "NVLinkDown"),
    Rule("nvlink.down", CONFIRMED, "NVLinkDown"),
    Rule("nvlink.links_missing", CONFIRMED, "NVLinkDown"),
    Rule("nvlink.link_slow", CONFIRMED, "NVLinkSlow"),
    Rule("nvlink.slow", CONFIRMED, "NVLinkSlow"),
    Rule("nvlink.*_errors", DEGRADED, "NVLinkErrors"),
    Rule("nvlink.ber", DEGRADED, "NVLinkErrors"),
    Rule("fabric.*", CONFIRMED, "Fabric"),
    Rule("c2c.link_down", CONFIRMED, "NVLinkDown"),
)
