"""Scripts that run nccl-tests over many nodes and give their tables to `wirewatch parse`."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import TypeAdapter

from wirewatch_lab.advice.shell import quoted
from wirewatch_lab.study.summary import count

MIB = 1 << 20
SOURCE_SIZES = (104857, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
"""0.1 to 256 MB of the source, which counts 2^20 bytes as one."""
SWEEP = tuple(8 << power for power in range(31))
"""8 B to 8 GiB, by factors of two."""
Launcher = Literal["slurm", "mpijob"]
TEMPLATES = {"slurm": "slurm.sh", "mpijob": "mpijob.yaml"}
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+-]+", re.ASCII)


class BenchScriptError(ValueError):
    """A value that no script can have; the text is one line for people."""


@dataclass(frozen=True, slots=True)
class BenchScript:
    """What is to be run, and how. Texts may be anything printable; empty for none.

    `ranges`: first and last size in bytes, and the factor between, as nccl-tests take them. `tests`: the
    folder of their programs. `alone`, `pairs`: measure every node, and neighbours, before all together.
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
        """The limit as Slurm has it."""
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
    """The script, or the manifests.

    Raises:
        BenchScriptError: a text with a line end or another character that is not printable, or a name that
            Kubernetes does not take; pairs of one node, or one GPU in all.
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
            raise BenchScriptError(
                f"name {wanted.name!r}: Kubernetes takes lower case letters, digits and -, 42 at most"
            )
        if not wanted.image:
            raise BenchScriptError("an MPIJob needs an image")
        values["script"] = _environment().get_template("mpirun.sh").render(values).rstrip("\n")
    return _environment().get_template(TEMPLATES[wanted.launcher]).render(values)


def document(at: float, wanted: BenchScript) -> BenchScriptDocument:
    """The script with its use; `at` in Unix seconds.

    Raises:
        BenchScriptError: as `render`.
    """
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


def _yaml(text: str) -> str:
    """Printable text as a string of YAML, of which JSON's are some."""
    return json.dumps(text, ensure_ascii=False)


@cache
def _environment() -> Environment:
    # Nothing here is HTML: each value goes through the quoting of its own language. bash has {# of its own.
    made = Environment(  # nosec B701
        loader=PackageLoader("wirewatch_lab.advice"), autoescape=False,  # noqa: S701
        undefined=StrictUndefined, comment_start_string="{##", comment_end_string="##}",
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, auto_reload=False,
    )  # fmt: skip
    made.filters |= {"sh": quoted, "sbatch": sbatch_word, "yaml": _yaml}
    return made
