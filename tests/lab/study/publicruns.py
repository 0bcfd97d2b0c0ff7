"""Public runs between nodes of docs/studies/runs.toml, judged as `wirewatch parse` judges them."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.lab.study.test_basis import Table, job, judged, log_of
from tools.prose import ROOT
from wirewatch.busbw.profiles import VAGUE
from wirewatch.core.probe import ALL_REDUCE
from wirewatch_lab.advice.described import network_of
from wirewatch_lab.study.basis import RunGrounds
from wirewatch_lab.study.judge import DECIDES, JudgedRun

FILE = ROOT / "docs" / "studies" / "runs.toml"


@dataclass(frozen=True)
class PublicRun:
    """One run: MiB with GB/s of busbw, its network as `--network` or a line of its log has it, its source."""

    name: str
    source: str
    product: str
    table: Mapping[str, float]
    network: str = ""
    log: str = ""
    op: str = ALL_REDUCE
    nodes: int = 2
    gpus: int = 8
    fault: str = ""
    answer: JudgedRun = field(init=False)

    def __post_init__(self) -> None:
        """Judge it once."""
        object.__setattr__(self, "answer", self.at(1.0))

    def at(self, share: float) -> JudgedRun:
        """The answer to a run of the same nodes that reaches so much of it."""
        grounds = RunGrounds(network=network_of(self.network)) if self.network else log_of(self.log)
        table: Table = {float(mib): share * busbw for mib, busbw in self.table.items()}
        return judged(job(self.product, table, self.nodes * self.gpus, self.nodes, self.op), grounds)

    @property
    def within(self) -> bool:
        """Whether something is known of it, and every size is within its bound of what is expected."""
        sizes = self.answer.sizes
        known = any(one.expected.within <= DECIDES for one in sizes)
        return known and all(abs(one.ratio - 1) <= min(one.expected.within, VAGUE) for one in sizes)


RUNS = tuple(PublicRun(**one) for one in tomllib.loads(FILE.read_text("utf-8"))["run"])
