"""What can be wrong with the ports and cards of InfiniBand, RoCE and EFA."""

from wirewatch.core.collector import CONFIRMED, DEGRADED, FAILED, REST, Rule

RULES = (
    Rule("infiniband.port_down", CONFIRMED, "PortDown"),
    Rule("infiniband.port_inactive", DEGRADED, "PortDown"),
    Rule("infiniband.ports_missing", CONFIRMED, "PortDown"),
    Rule("infiniband.device_gone", CONFIRMED, "PortDown"),
    Rule("infiniband.port_flapping", FAILED, "PortFlapping"),
    Rule("infiniband.port_slow", CONFIRMED, "PortSlow"),
    Rule("infiniband.pcie", CONFIRMED, "PortSlow"),
    Rule("infiniband.*_errors", DEGRADED, "PortErrors"),
    Rule("infiniband.counter_saturated", DEGRADED, "PortErrors"),
    # No wire is broken by that alone.
    Rule("infiniband.ibstat_disagrees", DEGRADED, REST),
)
