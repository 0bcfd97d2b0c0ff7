"""Whether the parts of a result fit each other, so that whoever reckons with it need not look."""

from wirewatch.core.probing.document import Document
from wirewatch.core.probing.plan import Plan
from wirewatch.core.probing.result import Probed


def strange(document: Document, plan: Plan) -> str:
    """What cannot be of this plan, so that whoever reckons with a document need not look; empty: nothing."""
    gpus = range(len(plan.gpus))
    timed = [(t.group, t.op, t.size_bytes) for t in document.collectives]
    copied = [(c.source, c.destination) for c in document.copies]
    alone = [m.gpu for m in document.micros]
    asked = {(g, op, size) for g in range(len(plan.groups)) for op in plan.ops for size in plan.sizes()}
    times = (
        *(t.seconds for t in document.collectives), *(c.seconds for c in document.copies),
        *(m.copy_seconds for m in document.micros),
    )  # fmt: skip
    checks = {
        f"engine {document.engine}": document.engine == plan.engine,
        "collectives that were not asked for": asked.issuperset(timed),
        "GPUs that are not there": all(p in gpus for p in (*alone, *(p for pair in copied for p in pair))),
        "the same twice": all(len(told) == len(set(told)) for told in (timed, copied, alone)),
        "a time that is not above 0": min(times, default=1.0) > 0,
    }
    return next((what for what, good in checks.items() if not good), "")


def unsound(probed: Probed) -> str:
    """What does not fit in a result that was kept or recorded; empty: everything does."""
    plan, count = probed.plan, len(probed.plan.gpus)
    told = [
        *(m.gpu for part in probed.parts for m in part.moved),
        *(one.gpu for one in probed.links),
        *(one.gpu for one in probed.clocks),
        *(position for group in plan.groups for position in group),
    ]
    checks = {
        "GPUs that are not there": all(position in range(count) for position in told),
        "GPUs that the plan does not have": not probed.gpus or len(probed.gpus) == count,
        "conditions of other groups": not probed.gpus or len(probed.conditions) == len(plan.groups),
        "a group of nobody": all(plan.groups),
    }
    found = next((what for what, good in checks.items() if not good), "")
    return found or ("" if probed.document is None else strange(probed.document, plan))
