"""`wirewatch fleet peer`: a node's part in a pair, which an engine starts on both nodes."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import config_option
from wirewatch.cli.options import owner as checked_owner
from wirewatch.core.exits import exit_of
from wirewatch.core.types import Health

if TYPE_CHECKING:
    from wirewatch.config import Config
    from wirewatch_fleet.rounds.answer import PeerAnswer
    from wirewatch_fleet.rounds.plan import PairPlan

PLAN, NAME = "WIREWATCH_PAIR_PLAN", "SLURMD_NODENAME"


@click.command(epilog=examples('wirewatch fleet peer --plan "$(cat plan.json)" --as n01'))
@config_option
@click.option("--plan", "text", envvar=PLAN, required=True, metavar="JSON", help=f"The plan; else {PLAN}.")
@click.option(
    "--as", "name", envvar=NAME, required=True, metavar="NODE",
    help=f"Which of the plan's two nodes this is; else {NAME}, which Slurm sets.",
)  # fmt: skip
@click.option(
    "--owner", callback=checked_owner, help="The job whose GPUs count as idle: slurm:ID or pod:UID."
)
@click.pass_context
def peer(
    context: click.Context, *, config_file: Path | None, text: str, name: str, owner: str | None
) -> None:
    """Measure with the other node of a pair; `wirewatch fleet probe` starts this on both.

    The plan is a document wirewatch.fleet-pair-plan/1. Prints the answer as one line of JSON
    (wirewatch.fleet-peer/1), also where the GPUs are in use or nothing could be measured. Ends with 0 where
    the pair was measured, else with 3.
    """
    from wirewatch.catalogue import discover
    from wirewatch.config import load
    from wirewatch.probe.workfolder import remove_left_folders
    from wirewatch_fleet.rounds.answer import encode_answer
    from wirewatch_fleet.rounds.plan import PlanError, decode_pair_plan

    try:
        plan = decode_pair_plan(text)
    except PlanError as error:
        raise click.UsageError(str(error)) from error
    if name not in {plan.first, plan.second}:
        raise click.UsageError(f"{name} is neither {plan.first} nor {plan.second}, the nodes of the plan")
    config, _ = load(config_file, discover())
    remove_left_folders()
    answer = _measured(config, plan, name, owner or _own_job())
    click.echo(encode_answer(answer))
    context.exit(exit_of(Health.UNKNOWN if answer.cause else Health.OK))


def _measured(config: "Config", plan: "PairPlan", name: str, owner: str | None) -> "PeerAnswer":
    """Return the answer of this node, which a signal ends early."""
    from wirewatch.cli.hardware import live, own_state
    from wirewatch.signals import SIGNALS
    from wirewatch_fleet.rounds.peer import PeerRequest, with_partner

    ended: list[str] = []
    with ExitStack() as stack:
        hardware, nvml = live(config, state=own_state(config))
        stack.callback(nvml.stop)
        stack.enter_context(
            SIGNALS.taken(stop=lambda by: ended.append(f"ended by {by}"), reload=lambda: None)
        )
        wanted = PeerRequest(plan, name, owner, lambda: ended[0] if ended else None)
        return with_partner(hardware, wanted, config.probe)


def _own_job() -> str | None:
    """Return the Slurm job of this process, whose GPUs it may use."""
    job = os.environ.get("SLURM_JOB_ID", "")
    return f"slurm:{job}" if job else None
