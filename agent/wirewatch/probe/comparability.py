"""What a probe of this daemon would measure, and whether one that another process ran is comparable.

One that measured less must not clear what it never looked at, and one that ran under other settings, or
against other figures, found something else.
"""

from dataclasses import dataclass

from wirewatch.core.ports import Hardware
from wirewatch.core.probe import Conditions, Plan, Probed
from wirewatch.core.types import Absent, Expect
from wirewatch.nccl.settings import slowing_settings
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.setup import cpu_scene, plan_of, read_scene

Given = tuple[tuple[int | None, tuple[tuple[str, float], ...]], ...]


@dataclass(frozen=True, slots=True)
class ProbeTerms:
    """What decides what a probe finds.

    `slowing`: NCCL's settings that lower bandwidth; `given`: links and pins of the operator, by group.
    """

    plan: Plan
    slowing: tuple[tuple[str, str, str], ...]
    given: Given
    boot_id: str


def read_terms(
    hardware: Hardware, options: ProbeOptions, expect: Expect, boot_id: str
) -> ProbeTerms | Absent:
    """The terms of the probe that would be ordered now, if the gate were open."""
    engine = hardware.probe.engine(options.engine)
    if isinstance(engine, Absent):
        return engine
    if options.engine == "gloo":
        return ProbeTerms(plan_of(options, engine, cpu_scene(options.ranks)), (), (), boot_id)
    gpus = hardware.nvml.gpus()
    if isinstance(gpus, Absent):
        return gpus
    scene = read_scene(hardware, gpus, hardware.probe.settings(), expect, options.pins)
    if isinstance(scene, Absent):
        return scene
    plan = plan_of(options, engine, scene)
    return ProbeTerms(plan, slowing_settings(scene.settings), _given(scene.conditions), boot_id)


def difference(probed: Probed, boot_id: str, terms: ProbeTerms) -> str:
    """Why a probe that ran in that boot is not comparable, in words; empty where it is."""
    plan, wanted = probed.plan, terms.plan
    slowing = slowing_settings(probed.settings)
    differ = sorted({name for name, _, _ in {*slowing} ^ {*terms.slowing}})
    checks = (
        (boot_id not in {"", terms.boot_id}, "before this boot"),
        (plan.engine != wanted.engine, f"with the engine {plan.engine}, not {wanted.engine}"),
        (
            plan.gpus != wanted.gpus,
            f"of {len(plan.gpus)} GPUs, which are not the {len(wanted.gpus)} watched here",
        ),
        (plan.groups != wanted.groups, "over other groups of GPUs"),
        (plan != wanted, "of other collectives or sizes than are configured here"),
        (bool(differ), f"under other settings of NCCL: {', '.join(differ)}"),
        (_given(probed.conditions) != terms.given, "against other pins or counts of links"),
    )
    return next((why for wrong, why in checks if wrong), "")


def _given(conditions: tuple[Conditions, ...]) -> Given:
    return tuple((one.links, tuple(sorted(one.pins.items()))) for one in conditions)
