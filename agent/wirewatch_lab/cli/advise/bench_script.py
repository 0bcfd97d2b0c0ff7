"""`wirewatch advise bench-script`: scripts that run nccl-tests over many nodes."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import click
from jinja2 import Environment, PackageLoader, StrictUndefined

from wirewatch.cli.groups import examples
from wirewatch.cli.options import Duration, WholeNumber
from wirewatch.core.probe import OPS, PRIMITIVES
from wirewatch.core.words import count
from wirewatch.documents.adapter import TypeAdapter
from wirewatch_lab.advice.shell import quoted
from wirewatch_lab.cli.grids import Sizes

Launcher = Literal["slurm", "mpijob"]
TESTS = "/opt/nccl-tests/build"
OF_SLURM = ("partition", "account", "mpi")
LONGEST = 365 * 86400
RESULTS, POD_RESULTS = "nccl-tests", "/tmp/nccl-tests"  # noqa: S108  # nosec B108 - in the pod's own /tmp
IMAGE = "nccl-tests:latest"
"""Placeholder that the site replaces by its own image."""


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
    "--time", "limit", type=Duration(most=LONGEST), default="2h",
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


MIB = 1 << 20
SOURCE_SIZES = (104857, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
"""The source's sizes, 0.1 to 256 MB, with 1 MB as 2^20 bytes."""
SWEEP = tuple(8 << power for power in range(31))
"""8 B to 8 GiB, by factors of two."""
TEMPLATES = {"slurm": "slurm.sh", "mpijob": "mpijob.yaml"}
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+-]+", re.ASCII)


class BenchScriptError(ValueError):
    """A value that no script can have; the text is one line for people."""


@dataclass(frozen=True, slots=True)
class BenchScript:
    """The requested script: nccl-tests, nodes and launcher.

    Texts may hold any printable characters; empty means none.

    `ranges`: first and last size in bytes, and the factor between, as nccl-tests take them. `tests`: the
    folder of the nccl-tests programs. `alone`, `pairs`: measure every node, and neighbours, before all
    together.
    """

    launcher: Launcher
    nodes: int
    gpus: int
    ops: tuple[str, ...]
    ranges: tuple[tuple[int, int, int], ...]
    tests: str
    results: str
    name: str
    image: str = ""
    partition: str = ""
    account: str = ""
    mpi: str = "pmix"
    seconds: int = 7200
    iterations: int = 20
    warmup: int = 5
    alone: bool = False
    pairs: bool = False

    @property
    def time(self) -> str:
        """Return the time limit in Slurm's format."""
        minutes, seconds = divmod(self.seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}"


@dataclass(frozen=True, slots=True)
class BenchScriptDocument:
    """The script and how to use it: `submit` starts it, `read` reads what it printed."""

    schema: Literal["wirewatch.advise-bench-script/1"]
    at: float
    launcher: Launcher
    nodes: int
    gpus_per_node: int
    ops: tuple[str, ...]
    ranges: tuple[tuple[int, int, int], ...]
    script: str
    submit: str
    read: str


BENCH_SCRIPT = TypeAdapter(BenchScriptDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.advise-bench-script.1": BENCH_SCRIPT}


def render(wanted: BenchScript) -> str:
    """Return the script, or the Kubernetes manifests.

    Raises BenchScriptError: a text has a line end or unprintable character, or Kubernetes refuses a name. It
    is also raised for pairs of one node, or for one GPU in all.
    """
    for name, value in asdict(wanted).items():
        if isinstance(value, str) and not value.isprintable():
            raise BenchScriptError(f"{name} {value!r}: a script takes printable text alone")
    if wanted.pairs and wanted.nodes == 1:
        raise BenchScriptError("pairs take two nodes or more")
    if wanted.nodes * wanted.gpus == 1:
        raise BenchScriptError("collectives take two GPUs or more")
    over = f"{count(wanted.nodes, 'node')} of {count(wanted.gpus, 'GPU')}"
    values = {**asdict(wanted), "time": wanted.time, "over": over}
    if wanted.launcher == "mpijob":
        if not _LABEL.fullmatch(wanted.name):
            letters = "lower case letters, digits and -, 42 at most"
            raise BenchScriptError(f"name {wanted.name!r}: Kubernetes takes {letters}")
        if not wanted.image:
            raise BenchScriptError("an MPIJob needs an image")
        values["script"] = _environment().get_template("mpirun.sh").render(values).rstrip("\n")
    return _environment().get_template(TEMPLATES[wanted.launcher]).render(values)


def document(at: float, wanted: BenchScript) -> BenchScriptDocument:
    """Return the script with its use; `at` in Unix seconds. Raises BenchScriptError: as `render`."""
    if wanted.launcher == "slurm":
        submit, read = "sbatch FILE", f"wirewatch parse {quoted(wanted.results)}/JOB.0/all.OPERATION.txt"
    else:
        submit = "kubectl apply -f FILE"
        read = f"kubectl logs job/{wanted.name}-launcher | wirewatch parse -"
    return BenchScriptDocument(
        "wirewatch.advise-bench-script/1", at, wanted.launcher, wanted.nodes, wanted.gpus, wanted.ops,
        wanted.ranges, render(wanted), submit, read,
    )  # fmt: skip


def to_ranges(sizes: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Sizes in bytes as ranges of nccl-tests: first, last, and the factor between two."""
    found: list[tuple[int, int, int]] = []
    for size in sorted(set(sizes)):
        if found:
            first, last, factor = found[-1]
            step, odd = divmod(size, last)
            if not odd and (first == last or step == factor):
                found[-1] = (first, size, step)
                continue
        found.append((size, size, 2))
    return tuple(found)


def sbatch_word(text: str) -> str:
    """Printable text as one word of a line `#SBATCH`: a backslash there takes the next character as it is."""
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


@cache
def _environment() -> Environment:
    # Nothing here is HTML: each value goes through the quoting of its own language. bash has {# of its own.
    made = Environment(  # nosec B701
        loader=PackageLoader("wirewatch_lab.cli.advise"), autoescape=False,  # noqa: S701
        undefined=StrictUndefined, comment_start_string="{##", comment_end_string="##}",
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, auto_reload=False,
    )  # fmt: skip
    # JSON's strings are some of YAML's.
    in_yaml = partial(json.dumps, ensure_ascii=False)
    made.filters |= {"sh": quoted, "sbatch": sbatch_word, "yaml": in_yaml}
    return made
