"""What a probe of the daemon's own would be here, and whether one that another process ran is the same.

One that measured less must not clear what it never looked at, and one that ran under other settings, or
against other figures, found something else.
"""

from dataclasses import dataclass

from wirewatch.core.ports import Hardware
from wirewatch.core.probing.ncclsettings import slowing_settings
from wirewatch.core.probing.plan import Plan
from wirewatch.core.probing.result import Probed
from wirewatch.core.probing.wire import Conditions
from wirewatch.core.types import Absent, Expect
from wirewatch.probes.policy import ProbeOptions
from wirewatch.probes.prepare import plan_of
from wirewatch.probes.scene import cpu_scene, read_scene

Given = tuple[tuple[int | None, tuple[tuple[str, float], ...]], ...]


@dataclass(frozen=True, slots=True)
class Own:
    """`slowing`: NCCL's settings that lower bandwidth; `given`: links and pins of the operator, by group."""

    plan: Plan
    slowing: tuple[tuple[str, str, str], ...]
    given: Given
    boot_id: str


def read_own(hardware: Hardware, options: ProbeOptions, expect: Expect, boot_id: str) -> Own | Absent:
    """What would be ordered now, if the gate were open."""
    engine = hardware.probe.engine(options.engine)
    if isinstance(engine, Absent):
        return engine
    if options.engine == "gloo":
        return Own(plan_of(options, engine, cpu_scene(options.ranks)), (), (), boot_id)
    gpus = hardware.nvml.gpus()
    if isinstance(gpus, Absent):
        return gpus
    scene = read_scene(hardware, gpus, hardware.probe.settings(), expect, options.pins)
    if isinstance(scene, Absent):
        return scene
    plan = plan_of(options, engine, scene)
    return Own(plan, slowing_settings(scene.settings), _given(scene.conditions), boot_id)


def unlike(probed: Probed, boot_id: str, own: Own) -> str:
    """Why a probe that ran in that boot is not one of the daemon's own, in words; empty where it is."""
    plan, mine = probed.plan, own.plan
    slowing = slowing_settings(probed.settings)
    differ = sorted({name for name, _, _ in {*slowing} ^ {*own.slowing}})
    checks = (
        (boot_id not in {"", own.boot_id}, "before this boot"),
        (plan.engine != mine.engine, f"with the engine {plan.engine}, not {mine.engine}"),
        (
            plan.gpus != mine.gpus,
            f"of {len(plan.gpus)} GPUs, which are not the {len(mine.gpus)} watched here",
        ),
        (plan.groups != mine.groups, "over other groups of GPUs"),
        (plan != mine, "of other collectives or sizes than are configured here"),
        (bool(differ), f"under other settings of NCCL: {', '.join(differ)}"),
        (_given(probed.conditions) != own.given, "against other pins or counts of links"),
    )
    return next((why for wrong, why in checks if wrong), "")


def _given(conditions: tuple[Conditions, ...]) -> Given:
    return tuple((one.links, tuple(sorted(one.pins.items()))) for one in conditions)
