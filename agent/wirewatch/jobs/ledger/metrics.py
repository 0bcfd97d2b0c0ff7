"""The waiting ledger as series: on what each GPU has spent its time while jobs ran, without their names."""

from collections.abc import Iterator, Mapping

from wirewatch.core.types import Kind, Metric, Panel, Sample
from wirewatch.jobs.ledger.model import LedgerMemory, LedgerReading
from wirewatch.jobs.ledger.spent import Spent

WORDS: Mapping[Spent, str] = {
    Spent.COMPUTING: "computing", Spent.LOCAL_RANK: "waiting_local", Spent.OTHER_NODE: "waiting_elsewhere",
    Spent.WIRE: "wire", Spent.BEYOND: "wire_beyond_expected", Spent.IDLE: "idle",
    Spent.NOT_ATTRIBUTED: "not_attributed",
}  # fmt: skip
TIME = Metric(
    "job_time_seconds_total", Kind.COUNTER, ("gpu", "uuid", "spent"),
    "Time of a GPU while processes compute on it, by what it was spent on; its rates add up to 1 for each "
    "GPU of a job that could be read.",
    "waiting for other nodes, and more than 4 GPUs", Panel("Time of jobs, by what it is spent on"),
)  # fmt: skip
METRICS = (TIME,)
SERIES = 8 * len(Spent)


def samples(_reading: LedgerReading, memory: LedgerMemory) -> Iterator[Sample]:
    """Yield the counters of each GPU that has had processes; they stay when a job is over."""
    for gpu, spent in memory.totals.items():
        labels = memory.labels.get(gpu)
        if labels is not None:
            for word, seconds in zip(WORDS.values(), spent, strict=True):
                yield TIME.sample(seconds, *labels, word)
