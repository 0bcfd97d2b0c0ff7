"""`wirewatch advise bench-script`: scripts that run nccl-tests over many nodes."""

import time
from pathlib import Path

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import Duration, WholeNumber
from wirewatch.core.probe import OPS, PRIMITIVES
from wirewatch_lab.advice.benchscript import (
    BENCH_SCRIPT,
    SOURCE_SIZES,
    SWEEP,
    BenchScript,
    BenchScriptError,
    Launcher,
    document,
    to_ranges,
)
from wirewatch_lab.cli.grids import Sizes

TESTS = "/opt/nccl-tests/build"
OF_SLURM = ("partition", "account", "mpi")
LONGEST = 365 * 86400
RESULTS, POD_RESULTS = "nccl-tests", "/tmp/nccl-tests"  # noqa: S108  # nosec B108 - in the pod's own /tmp
IMAGE = "nccl-tests:latest"
"""To be replaced by the site's own."""


@click.command(
    "bench-script", epilog=examples("wirewatch advise bench-script --nodes 16 --alone --out bench.sh")
)
@click.option("--nodes", type=WholeNumber(1, 10_000), required=True, help="How many nodes.")
@click.option("--gpus-per-node", type=WholeNumber(1, 64), default=8, show_default=True, help="GPUs of each.")
@click.option(
    "--launcher", type=click.Choice(["slurm", "mpijob"]), default="slurm", show_default=True,
    help="A batch script, or manifests for Kubeflow's MPI operator.",
)  # fmt: skip
@click.option(
    "--op", "ops", multiple=True, type=click.Choice(PRIMITIVES),
    help=f"Operations; repeatable. Default: {', '.join(OPS)}.",
)  # fmt: skip
@click.option(
    "--sizes", multiple=True, type=Sizes(),
    help="Bytes, FROM:TO:FACTOR or a list; repeatable. Default: 104857,1M:256M:4 and 8:8G:2.",
)  # fmt: skip
@click.option("--alone", is_flag=True, help="Measure every node by itself first.")
@click.option("--pairs", is_flag=True, help="Measure neighbours in pairs, in two rounds.")
@click.option("--iterations", type=WholeNumber(1, 100_000), default=20, show_default=True, help="Timed runs.")
@click.option("--warmup", type=WholeNumber(0, 100_000), default=5, show_default=True, help="Runs before.")
@click.option("--nccl-tests", "tests", default=TESTS, show_default=True, help="The folder of their programs.")
@click.option(
    "--results", default="", help=f"The folder of the tables. Default: {RESULTS}; in a pod {POD_RESULTS}."
)
@click.option("--name", default="nccl-tests", show_default=True, help="Name of the job.")
@click.option(
    "--time", "limit", type=Duration(most=LONGEST), default=7200.0,
    help="Its limit, such as 2h (the default).",
)  # fmt: skip
@click.option("--image", default="", help="Container image; on Slurm by its plugin pyxis.")
@click.option("--partition", default="", help="Slurm's partition.")
@click.option("--account", default="", help="Slurm's account.")
@click.option("--mpi", default="pmix", show_default=True, help="Slurm's plugin for the MPI of nccl-tests.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with the script in it.")
@click.pass_context
def bench_script(
    context: click.Context, *, nodes: int, gpus_per_node: int, launcher: Launcher, ops: tuple[str, ...],
    sizes: tuple[tuple[int, ...], ...], alone: bool, pairs: bool, iterations: int, warmup: int, tests: str,
    results: str, name: str, limit: float, image: str, partition: str, account: str, mpi: str,
    out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Write a script that runs nccl-tests over NODES nodes and feeds `wirewatch parse`.

    It forces no setting of NCCL, keeps NCCL's log out of the tables, goes on after a failure and ends with
    its exit code. Nothing is started here. Exit codes: 0 done; 64 wrong usage, or the file cannot be written.
    """
    given = click.core.ParameterSource.COMMANDLINE
    if launcher == "mpijob":
        foreign = [one for one in OF_SLURM if context.get_parameter_source(one) is given]
        if foreign:
            raise click.UsageError(f"--{foreign[0]} is Slurm's: leave it out with --launcher mpijob")
        image, results = image or IMAGE, results or POD_RESULTS
    chosen = sizes or (SOURCE_SIZES, SWEEP)
    wanted = BenchScript(
        launcher, nodes, gpus_per_node, tuple(dict.fromkeys(ops or OPS)),
        tuple(dict.fromkeys(one for some in chosen for one in to_ranges(some))), tests,
        results or RESULTS, name, image,
        partition, account, mpi, max(60, round(limit)), iterations, warmup, alone, pairs,
    )  # fmt: skip
    try:
        made = document(time.time(), wanted)
    except BenchScriptError as error:
        raise click.UsageError(str(error)) from error
    text = BENCH_SCRIPT.dump_json(made, indent=1).decode() + "\n" if as_json else made.script
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise click.UsageError(f"{out}: {error.strerror or error}") from error
    click.echo(f"{out}: written; start it with {made.submit.replace('FILE', str(out))}", err=True)
