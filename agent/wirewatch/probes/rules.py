"""What a probe can find."""

from wirewatch.core.collector import CONFIRMED, DEGRADED, FAILED, UNKNOWN, Rule
from wirewatch.probes.stragglers import DO
from wirewatch.verdict.straggler.signals import Resource

RULES = (
    Rule("probe.wrong_data", FAILED, "WrongData"),
    Rule("probe.busbw", CONFIRMED, "BusbwLow"),
    Rule("probe.transport", CONFIRMED, "ProbePath"),
    Rule("probe.nvls", DEGRADED, "ProbePath"),
    Rule("probe.path", DEGRADED, "ProbePath"),
    Rule("probe.uneven", DEGRADED, "ProbePath"),
    Rule("probe.link_errors", DEGRADED, "NVLinkErrors"),
    Rule("probe.failed", UNKNOWN),
    *(Rule(f"straggler.{part.value}", CONFIRMED, "Straggler") for part in DO if part is not Resource.LINK),
    Rule("straggler.node", CONFIRMED, "Straggler"),
)
