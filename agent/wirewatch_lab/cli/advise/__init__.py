"""`wirewatch advise`: what a collective costs, where to place a job, what to set, how to measure."""

import click

from wirewatch.cli.groups import LazyGroup, Listed

COMMANDS: dict[str, Listed] = {
    "cost": Listed(
        "wirewatch_lab.cli.advise.cost:cost_command",
        "Say what collectives cost on a machine, and what they make of a token or a training step.",
    ),
    "bench-script": Listed(
        "wirewatch_lab.cli.advise.bench_script:bench_script",
        "Write a script that runs nccl-tests over NODES nodes and feeds `wirewatch parse`.",
    ),
    "gpu-nic": Listed(
        "wirewatch_lab.cli.advise.gpu_nic:gpu_nic",
        "Map each GPU to its nearest active RDMA ports and processors, and show what a job sets to use them.",
    ),
    "nccl-env": Listed(
        "wirewatch_lab.cli.advise.nccl_env:nccl_env",
        "Advise on NCCL's environment variables, or check those of a job.",
    ),
    "placement": Listed(
        "wirewatch_lab.cli.advise.placement:placement",
        "Say which GPUs of which nodes a job's TP groups, pipeline stages and replicas take.",
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def advise() -> None:
    """Advise on collectives, placement and settings.

    Nothing is changed, and nothing is run on the GPUs. Each figure says what it stands on.
    """
