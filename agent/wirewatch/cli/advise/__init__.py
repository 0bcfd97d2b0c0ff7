"""`wirewatch advise`: what a collective costs, where to place a job, what to set, how to measure."""

import click

from wirewatch.cli import LazyGroup

COMMANDS: dict[str, str] = {
    "cost": "wirewatch.cli.advise.cost:cost_command",
    "bench-script": "wirewatch.cli.advise.bench_script:bench_script",
    "gpu-nic": "wirewatch.cli.advise.gpu_nic:gpu_nic",
    "nccl-env": "wirewatch.cli.advise.nccl_env:nccl_env",
    "placement": "wirewatch.cli.advise.placement:placement",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def advise() -> None:
    """Advise on collectives, placement and settings.

    Nothing is changed, and nothing is run on the GPUs. Each figure says what it stands on.
    """
