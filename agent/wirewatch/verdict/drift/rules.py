"""What the topology can differ in from the one that was accepted."""

from wirewatch.core.collector import DEGRADED, UNKNOWN, Rule
from wirewatch.core.types import Health
from wirewatch.verdict.drift.severity import SEVERITY

ALERT = "TopologyDrift"
RULES = (
    *(
        Rule(f"topology.{kind.value}", (one.health,), ALERT)
        for kind, one in SEVERITY.items()
        if one.health is not Health.OK
    ),
    # A part that was replaced is watched for a while, as if it had been repaired.
    *(
        Rule(f"topology.{kind.value}", DEGRADED, ALERT)
        for kind, one in SEVERITY.items()
        if one.health is Health.OK and one.probation
    ),
    Rule("topology.shape", (Health.DEGRADED, Health.UNKNOWN, Health.FAILED), ALERT),
    Rule("topology.baseline", UNKNOWN),
)
