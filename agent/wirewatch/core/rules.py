"""Rules: each kind of finding as data, from which alerts, runbook, dashboards and tests are made."""

from dataclasses import dataclass

from wirewatch.core.types import Finding, Health, Subject

REST = "Finding"
"""The alert that reports every rule that has none of its own."""
BLIND = "NodeUnknown"
"""The alert for what is not known, which has no severity of its own."""
UNKNOWN = (Health.UNKNOWN,)
DEGRADED = (Health.DEGRADED,)
CONFIRMED = (Health.DEGRADED, Health.FAILED)
"""DEGRADED at the first look, or where it is mild; FAILED once it is confirmed, or where it is not."""
FAILED = (Health.FAILED,)


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding that a collector makes.

    `name` is `family.fault`, or a glob where the fault is known only at run time (`sxid.*`). `healths`: those
    that its findings can have, the worst last. `alert` is the name, without the prefix `Wirewatch`, of the
    alert that reports it and of its page in docs/runbooks; the default is made of the rule's own name.

    `means`, `look` and `do` are its entry in docs/runbook.md, and the page of an alert that it has alone;
    `do` is also what its findings advise. A rule without `means` has an entry that is written by hand.
    `rehearse` says how to see it where no bundled overlay makes it. `hold` is for how long a FAILED finding
    lasts before it is a page, in Prometheus' form; a DEGRADED one waits a quarter of an hour.
    """

    name: str
    healths: tuple[Health, ...]
    alert: str = ""
    means: str = ""
    look: str = ""
    do: str = ""
    rehearse: str = ""
    hold: str = "2m"

    @property
    def worst(self) -> Health:
        return max(self.healths)

    @property
    def reported(self) -> str:
        """The full name of the alert that reports it."""
        if self.alert:
            return f"Wirewatch{self.alert}"
        if self.worst is Health.UNKNOWN:
            return f"Wirewatch{BLIND}"
        return "Wirewatch" + "".join(word.capitalize() for word in self.name.replace(".", "_").split("_"))

    def finding(
        self, subject: Subject, evidence: str, health: Health | None = None, action: str = ""
    ) -> Finding:
        """A finding of this rule, by default as bad as it can be and with the rule's own advice."""
        return Finding(self.name, health or self.worst, subject, evidence, action or self.do)
