"""Which NCCL settings a job should have on a node. Nearly all are left to NCCL unless a sweep says otherwise.

A value is given where NCCL cannot know better: which ports are not for GPUs, which GID an old version should
take, and what a sweep of this very node measured at the sizes of the job's purpose.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch.busbw.references import Confidence
from wirewatch.core.topology import WireKind
from wirewatch.nccl.lists import STRICT
from wirewatch.nccl.settings import NVLS_ENABLE
from wirewatch.nccl.variables import version_text
from wirewatch_lab.advice.settings.candidates import CANDIDATES, GUIDE, Candidate
from wirewatch_lab.advice.settings.measured import (
    JobPurpose,
    MeasuredSetting,
    Winner,
    measured_settings,
    winner,
)
from wirewatch_lab.advice.settings.network import network_advice
from wirewatch_lab.advice.settings.node import NcclNode
from wirewatch_lab.study.curve import Study
from wirewatch_lab.study.summary import span

SWEPT = "a sweep of this node"


@dataclass(frozen=True, slots=True)
class VariableAdvice:
    """One variable. `value`: null to leave it unset, which is NCCL's own choice.

    `disagree`: where public guides contradict each other or what was measured, both sides. `measured`: the
    variable's values beside NCCL's own choice, by a sweep.
    """

    name: str
    value: str | None
    reason: str
    confidence: Confidence
    when_not: str
    source: str
    disagree: str = ""
    measured: tuple[MeasuredSetting, ...] = ()


@dataclass(frozen=True, slots=True)
class NcclEnvDocument:
    """The advice for one purpose. `at`: Unix seconds. `nccl`: its version, null where that is not known."""

    schema: Literal["wirewatch.advise-nccl-env/1"]
    at: float
    machine: str
    purpose: str
    nccl: str | None
    variables: tuple[VariableAdvice, ...]


NCCL_ENV = TypeAdapter(NcclEnvDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.advise-nccl-env.1": NCCL_ENV}


def advise(node: NcclNode, studies: Sequence[Study], purpose: JobPurpose, at: float) -> NcclEnvDocument:
    """All variables that are worth a word, those with a value first."""
    measured = measured_settings(studies)
    best = winner([one for one in measured if _is_understood(one, node)], purpose)
    found = [*(_static(one, purpose, node) for one in CANDIDATES), *_of_node(node)]
    known = {one.name for one in found}
    found += [_unnamed(name) for name in dict.fromkeys(one.name for one in measured) if name not in known]
    made = [_with_measurements(one, measured, best, purpose) for one in found]
    return NcclEnvDocument(
        schema="wirewatch.advise-nccl-env/1", at=at, machine=node.of, purpose=purpose.value,
        nccl=None if node.nccl is None else version_text(node.nccl),
        variables=tuple(sorted(made, key=lambda one: one.value is None)),
    )  # fmt: skip


def _is_understood(one: MeasuredSetting, node: NcclNode) -> bool:
    """Whether this node's NCCL reads lists for single collectives."""
    return ":" not in one.value or node.nccl is None or node.nccl >= STRICT


def _static(one: Candidate, purpose: JobPurpose, node: NcclNode) -> VariableAdvice:
    reason = one.training if purpose is JobPurpose.TRAINING and one.training else one.reason
    if one.name == NVLS_ENABLE and node.kind not in {None, WireKind.SWITCH, WireKind.UNKNOWN}:
        reason = f"no NVSwitch joins the GPUs here, so it has nothing to do. {reason}"
    return VariableAdvice(one.name, one.value, reason, one.confidence, one.when_not, one.source, one.disagree)


def _of_node(node: NcclNode) -> Iterator[VariableAdvice]:
    for one in network_advice(node):
        yield VariableAdvice(
            one.name, one.value, one.reason, one.confidence, one.when_not, one.source, one.disagree
        )


def _losses(best: Winner, measured: Sequence[MeasuredSetting]) -> str:
    """Where else the winner is slower, which a job with such messages pays for."""
    values = best.value.split(";")
    slower = [one for one in measured if one.verdict == "slower" and one.value in values]
    return "".join(
        f"messages of {span(one.first_bytes, one.last_bytes)}: {one.op} is {1 - one.speed:.1%} slower; "
        for one in slower
    )


def _unnamed(name: str) -> VariableAdvice:
    return VariableAdvice(
        name, None, "it was measured here, and nothing else is known of it", Confidence.LOW,
        "the sweep's figures below say otherwise", GUIDE,
    )  # fmt: skip


def _with_measurements(
    one: VariableAdvice, measured: Sequence[MeasuredSetting], best: Winner | None, purpose: JobPurpose
) -> VariableAdvice:
    mine = tuple(found for found in measured if found.name == one.name)
    if best is None or best.name != one.name:
        return replace(one, measured=mine)
    deciding = [found for found in best.measured if found.regime is purpose.regime]
    gain = max(found.speed for found in deciding) - 1
    around = next((f" The sweep was run with {found.around}." for found in deciding if found.around), "")
    lists = " Lists for single collectives take NCCL 2.24." if ":" in best.value else ""
    return replace(
        one,
        value=best.value,
        reason=f"measured here {gain:.1%} faster than NCCL's own choice at the sizes of {purpose.value}, "
        "more than the spread, and at no heeded size slower",
        confidence=Confidence.MEASURED,
        when_not=f"{_losses(best, mine)}another node, NCCL or driver, or other sizes: measure again. Each "
        f"setting was measured alone, so set no two of them.{lists}{around}",
        source=f"{SWEPT}: {deciding[0].source}",
        measured=mine,
    )
