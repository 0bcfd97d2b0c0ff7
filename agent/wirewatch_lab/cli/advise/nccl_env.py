"""`wirewatch advise nccl-env`: recommend a job's NCCL settings, and find faults in its present settings."""

import mmap
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill, shorten, wrap
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from wirewatch.busbw.formulas import FACTORS, busbw
from wirewatch.busbw.profiles import NetworkProfile
from wirewatch.cli.groups import RenamingCommand, examples
from wirewatch.cli.options import WholeNumber
from wirewatch.cli.topologies import is_recording
from wirewatch.core import words
from wirewatch.core.exits import exit_of
from wirewatch.core.types import Absent, Unusable, Why
from wirewatch.core.words import GB, count, printable, utc
from wirewatch.nccl.variables import Version, version
from wirewatch_lab.advice.settings import advice
from wirewatch_lab.advice.settings.candidates import VariableAdvice
from wirewatch_lab.advice.settings.finding import SettingFinding
from wirewatch_lab.advice.settings.measured import JobPurpose, MeasuredSetting, measured_settings
from wirewatch_lab.advice.settings.node import NOT_READ, NcclNode, described_node, read_node
from wirewatch_lab.advice.settings.sources import DEBUG, SettingsSource, of_conf, of_environ, of_file
from wirewatch_lab.cli.advise.machines import (
    ChosenMachine,
    machine_options,
    named_network,
    network_options,
    studies,
)
from wirewatch_lab.cli.machinenames import MACHINE
from wirewatch_lab.cli.texts import written
from wirewatch_lab.study.curve import Study
from wirewatch_lab.study.spread import Regime
from wirewatch_lab.study.summary import MUCH, span

if TYPE_CHECKING:
    from wirewatch.core.ports import Hardware

TABLE, FORMATS = "table", ("shell", "env", "yaml")
PURPOSES = tuple(one.value for one in JobPurpose)


@dataclass(frozen=True, slots=True)
class SettingsScene:
    """A node, its measurements, and the settings in its recording; None without a recording."""

    node: NcclNode
    studies: Sequence[Study]
    places: advice.Places | None


def known_version(_context: click.Context, option: click.Parameter, value: str | None) -> Version | None:
    """Read a version of NCCL (click callback). Raises BadParameter: the value is not a version."""
    found = version(value) if value is not None else None
    if value is not None and found is None:
        raise click.BadParameter(f"{printable(value[:40])!r} is not a version, such as 2.28.9", param=option)
    return found


@click.command(
    "nccl-env",
    cls=RenamingCommand,
    renamed=MACHINE,
    epilog=examples(
        "wirewatch advise nccl-env --for inference", "wirewatch advise nccl-env --check --pid 4711"
    ),
)
@click.option("--for", "purpose", type=click.Choice(PURPOSES), help="What the job does.")
@click.option(
    "--format", "form", type=click.Choice((TABLE, *FORMATS)), default=TABLE, help="For people or for a job."
)
@click.option("--check", "checking", is_flag=True, help="Say what is wrong with the settings of a job.")
@click.option("--pid", type=WholeNumber(min=1), help="With --check: of this process.")
@click.option(
    "--file", "file", type=click.Path(path_type=Path),
    help="With --check: of this file (`-`: standard input): an nccl.conf, an env file, a script, YAML of "
    "Kubernetes, or a copy of an environ.",
)  # fmt: skip
@click.option("--nccl", callback=known_version, help="The job's version of NCCL, such as 2.28.9.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@machine_options
@network_options
@click.pass_context
def nccl_env(
    context: click.Context, /, *, purpose: str | None, form: str, checking: bool, pid: int | None,
    file: Path | None, nccl: Version | None, as_json: bool, machine: str | None, network: str | None,
    explain: bool, **given: Any,
) -> None:  # fmt: skip
    """Advise on NCCL's environment variables, or check those of a job.

    Nearly all are left to NCCL. One gets a value where NCCL cannot know better, or where a sweep of this node
    (--measured) shows more than its spread in favour of it at the sizes of the purpose: small messages for
    inference, large ones for training. The settings of a network's plugin are left to it.

    With --check it looks at this process, --pid or --file, with the nccl.conf files that NCCL reads. Exit
    codes then: 0 nothing is wrong; 1 something slows, does nothing or does not exist; 2 something fails; 3 it
    is not known.
    """
    chosen = ChosenMachine.of(machine, given)
    named = named_network(network)
    if checking:
        if form != TABLE or purpose is not None:
            raise click.UsageError("--for and --format advise; --check says what is wrong")
        if pid is not None and (file is not None or given["replay"] is not None):
            raise click.UsageError("--pid is a process of this machine: without --file and --replay")
        context.exit(_check(chosen, pid, file, nccl, named, as_json=as_json, explain=explain))
    if purpose is None or pid is not None or file is not None:
        raise click.UsageError("give --for inference or --for training, or --check")
    if as_json and form != TABLE:
        raise click.UsageError("give one of --format and --json")
    seen = _see(chosen, nccl, named)
    made = advice.advise(seen.node, seen.studies, JobPurpose(purpose), time.time())
    if as_json:
        click.echo(advice.NCCL_ENV.dump_json(made, indent=1).decode())
    elif form == TABLE:
        click.echo(advice_text(made) if explain else first_advice(made))
    else:
        click.echo(job_text(made, form), nl=False)


def _check(
    chosen: ChosenMachine, pid: int | None, file: Path | None, nccl: Version | None,
    network: NetworkProfile | None, *, as_json: bool, explain: bool,
) -> int:  # fmt: skip
    places = of_process(pid) if pid is not None else None if file is None else of_named_file(file)
    if nccl is None and pid is not None:
        nccl = library_version(pid)
    try:
        seen = _see(chosen, nccl, network)
    except Unusable:
        if chosen.replay or chosen.topology or chosen.described:
            raise
        seen = SettingsScene(NcclNode(nccl=nccl, network=network), studies(chosen.measured), None)
    if pid is not None:
        # Its network namespace may be another one.
        seen = replace(seen, node=replace(seen.node, interfaces=NOT_READ))
    document, worst = advice.check(
        places or seen.places or of_this_process(), seen.node, measured_settings(seen.studies), time.time()
    )
    if as_json:
        click.echo(advice.NCCL_CHECK.dump_json(document, indent=1).decode())
    else:
        click.echo(check_text(document, explain=explain))
    return exit_of(worst)


def _see(chosen: ChosenMachine, nccl: Version | None, network: NetworkProfile | None) -> SettingsScene:
    """Return the scene of the options. Raises UsageError, Unusable: as `ChosenMachine.read`."""
    from wirewatch_lab.cli.parse import Node

    machine = chosen.read()
    machine = replace(machine, network=network or machine.network)
    said = (version(study.environment.get("nccl", "")) for study in machine.measured)
    nccl = nccl or next((one for one in said if one), None)
    recording = chosen.topology if chosen.topology and is_recording(chosen.topology) else chosen.replay
    if chosen.described is not None or (chosen.topology is not None and recording is None):
        return SettingsScene(described_node(machine, nccl), machine.measured, None)
    with Node(chosen.config_file, recording, chosen.overlays).hardware() as (_, hardware):
        places = of_recording(hardware, machine.of) if recording else None
        return SettingsScene(read_node(hardware, machine, nccl), machine.measured, places)


LIMIT = 1 << 20
"""Bytes of an environment or settings file; larger input is refused."""
_LIBRARY = re.compile(rb"(/\S*libnccl\.so[.\d]*)\n")
_SAYS = re.compile(rb"NCCL version (2\.\d{1,3}\.\d{1,3})")


def of_named_file(path: Path) -> advice.Places:
    """Return the settings of a file, or of standard input for `-`.

    Raises UsageError: the file is missing, too large, or holds no settings.
    """
    is_input = str(path) == "-"
    name = "standard input" if is_input else str(path)
    data = _most_of(sys.stdin.buffer, name) if is_input else _bytes(path)
    if isinstance(data, Absent) and data.why is Why.DENIED:
        return advice.Places(name, (), (advice.NotRead(name, data.detail),))
    source = data if isinstance(data, Absent) else of_file(data, name)
    if isinstance(source, Absent):
        raise click.UsageError(source.detail)
    return advice.Places(name, (source,))


def of_process(pid: int) -> advice.Places:
    """Return the settings of a running process: its first environment, and the files that its NCCL reads."""
    of, at = f"process {pid}, as it began", Path(f"/proc/{pid}")
    data, command = _bytes(at / "environ"), _bytes(at / "cmdline")
    if isinstance(data, Absent):
        missing = "no such process is here" if data.why in {Why.MISSING, Why.LOST} else data.detail
        return advice.Places(of, (), (advice.NotRead(f"{at}/environ", missing),))
    if not data and command == b"":
        empty = "it is empty: a process of the kernel, or a zombie"
        return advice.Places(of, (), (advice.NotRead(f"{at}/environ", empty),))
    return _with_files(of, of_environ(data, f"{at}/environ"), at / "root")


def of_this_process() -> advice.Places:
    """Return the settings of the current process, and of the files that its user's NCCL reads."""
    data = b"\0".join(name + b"=" + value for name, value in os.environb.items())
    return _with_files("this process", of_environ(data, "environment"), Path("/"))


def of_recording(hardware: "Hardware", name: str) -> advice.Places:
    """Return the settings in a recording: of its probe, and its /etc/nccl.conf."""
    from wirewatch.probe.setup import CONF

    pairs = b"\0".join(f"{key}={value}".encode() for key, value in hardware.probe.settings().items())
    sources = [of_environ(pairs, "environment of the probe")]
    text = hardware.sysfs.read(CONF)
    if isinstance(text, Absent) and text.why is not Why.MISSING:
        return advice.Places(name, tuple(sources), (advice.NotRead(CONF, text.detail),))
    return advice.Places(name, (*sources, *(() if isinstance(text, Absent) else (of_conf(text, CONF),))))


def library_version(pid: int) -> Version | None:
    """Return the version of NCCL that a process has loaded, by the library's own text; None if not found."""
    try:
        with Path(f"/proc/{pid}/maps").open("rb") as maps:
            found = next((match[1] for line in maps if (match := _LIBRARY.search(line))), None)
        if found is None:
            return None
        with (
            Path(f"/proc/{pid}/root{os.fsdecode(found)}").open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            said = _SAYS.search(text)
            return version(said[1].decode()) if said else None
    except (OSError, ValueError):
        return None


def _with_files(of: str, environment: SettingsSource, root: Path) -> advice.Places:
    from wirewatch.probe.setup import CONF

    values = {one.name: one.value for one in environment.settings}
    home = values.get("HOME", "")
    own = values.get("NCCL_CONF_FILE") or (f"{home}/.nccl.conf" if home else "")
    sources, not_read = [environment], []
    for name in (own, CONF):
        data = _bytes(root / name.lstrip("/")) if name else Absent(Why.MISSING)
        if not isinstance(data, Absent):
            sources.append(of_conf(data.decode("utf-8", "replace"), name))
        elif data.why is not Why.MISSING:
            not_read.append(advice.NotRead(name, data.detail))
    return advice.Places(of, tuple(sources), tuple(not_read))


def _bytes(path: Path) -> bytes | Absent:
    """Read a whole file; files of /proc state no size."""
    from wirewatch.hw.files import absent_errno

    try:
        with path.open("rb") as file:
            return _most_of(file, str(path))
    except OSError as error:
        return absent_errno(error.errno, str(path))
    except ValueError as error:
        return Absent(Why.MALFORMED, f"{str(path)!r}: {error}")


def _most_of(file: BinaryIO, name: str) -> bytes | Absent:
    data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        return Absent(Why.MALFORMED, f"{name}: more than {LIMIT} bytes, which no settings take")
    return data


UNSET = "leave unset"
WIDTH, SHOWN, SHOWN_MEASURED = 110, 10, 4
"""Columns of a line; findings and measured settings in a first answer."""


def check_text(made: advice.NcclCheckDocument, *, explain: bool) -> str:
    """Return the faults for people: the first answer, or all faults with their sources."""
    shown: list[str] = []
    lines = 0
    for one in made.findings:
        text = fill(printable(f"{_complaint(one, made.of)}: {one.text}"), WIDTH, subsequent_indent="    ")
        lines += len(text.splitlines())
        if shown and lines > SHOWN:
            break
        shown.append(text)
    return written(
        "nccl_check.j2", made, paragraph=_paragraph, complaint=_complaint, explain=explain, shown=shown
    )


def _complaint(one: SettingFinding, of: str = "") -> str:
    """Return the fault of a setting and its place, unless all settings share the place."""
    value, place = f"={one.value}" if one.value else "", f" ({one.origin})" if one.origin != of else ""
    return f"{one.trouble.value.upper()}: {one.name}{value}{place}"


def first_advice(made: advice.NcclEnvDocument) -> str:
    """Return the settings to change and why, in short; or a line that there are none."""
    to_set = [one for one in made.variables if one.value is not None and one.name != DEBUG]
    measured = [f"  measured here: {one.name} {_in_short(one)}" for one in made.variables if one.measured]
    where = f"{made.purpose} on {made.machine}{f', over {made.network}' if made.network else ''}"
    more = f"({DEBUG}=WARN prints NCCL's errors; reasons: --explain)"
    if to_set:
        head = f"Set this for {where}, and leave the rest to NCCL {more}:"
    elif made.remark:
        head = f"Set nothing {'by hand' if made.network else 'inside a node'} for {where}. {more}"
    else:
        head = f"Set nothing: NCCL's own choices hold for {where}. {more}"
    lines = [head, *(line for one in to_set for line in (f"  {one.name}={one.value}", _cut(one.reason)))]
    lines += [*measured[:SHOWN_MEASURED], *([f"{made.remark}."] if made.remark else ())]
    return "\n".join(map(printable, lines))


def _cut(reason: str) -> str:
    return f"      {shorten(reason, 2 * WIDTH, placeholder=' ...')}"


def advice_text(made: advice.NcclEnvDocument) -> str:
    """Return the advice for people: a table, then each variable with its reason."""

    def reasons(one: VariableAdvice) -> list[tuple[str, str]]:
        measured = [("measured here", measured_words(found)) for found in one.measured]
        before = [("why", one.reason), ("guides disagree", one.disagree)]
        return [*before, *measured, ("when not", one.when_not), ("source", one.source)]

    rows = [(one.name, one.value or UNSET, one.confidence.value, _in_short(one)) for one in made.variables]
    return written("nccl_advice.j2", made, unset=UNSET, rows=rows, reasons=reasons, paragraph=_paragraph)


def measured_words(one: MeasuredSetting) -> str:
    """Return a figure with and without the setting, and whether the difference exceeds the spread."""
    ranks = f"{one.op}, {count(one.ranks, 'rank')}, {one.launch}{', registered' if one.registered else ''}"
    if one.regime is Regime.LATENCY or one.op not in FACTORS:
        figures = f"{one.with_seconds * 1e6:.1f} us with {one.value}, {one.without_seconds * 1e6:.1f} without"
    else:
        times = (one.with_seconds, one.without_seconds)
        rates = [busbw(one.op, one.ranks, one.at_bytes, seconds) / GB for seconds in times]
        figures = f"{rates[0]:.1f} GB/s with {one.value}, {rates[1]:.1f} without"
    sizes = f"{span(one.first_bytes, one.last_bytes)} {one.speed - 1:+.1%}"
    return f"{figures} at {words.size(one.at_bytes)} ({ranks}); {sizes}: {_judged(one)}"


def _judged(one: MeasuredSetting) -> str:
    if one.spread is None:
        return "one repeat shows no spread: not judged"
    if one.verdict == "same":
        noise = one.noise or 0.0
        return f"may be noise, of which there may be {noise:.1%}" if noise < MUCH else "may be noise alone"
    return f"{one.verdict} by more than the spread ({max(one.spread):.1%})"


def job_text(made: advice.NcclEnvDocument, form: str) -> str:
    """Return the settings as exports for sh, as NAME=VALUE for nccl.conf and docker, or as YAML of a pod.

    Each value stays on one line, since measured values are user input.
    """
    import yaml

    values = [(one.name, printable(one.value)) for one in made.variables if one.value is not None]
    if form == "yaml":
        env = [{"name": name, "value": value} for name, value in values]
        text = yaml.safe_dump({"env": env}, sort_keys=False).rstrip()
    elif form == "shell":
        text = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in values)
    else:
        text = "\n".join(f"{name}={value}" for name, value in values)
    left = ", ".join(one.name for one in made.variables if one.value is None)
    head = f"NCCL's settings for {made.purpose}: {printable(made.machine)}, {utc(made.at)}"
    lines = (head, *wrap(printable(made.remark), WIDTH - 2), *wrap(f"left to NCCL: {left}", WIDTH - 2))
    return "\n".join([*(f"# {line}" for line in lines), text]) + "\n"


def _in_short(one: VariableAdvice) -> str:
    if not one.measured:
        return "-"
    best = max(one.measured, key=lambda found: (found.verdict == "faster", found.speed))
    return f"{best.value} {best.speed - 1:+.1%} {best.regime.value}: {best.verdict}"


def _paragraph(title: str, text: str) -> str:
    head = f"    {title}: " if title else "    "
    return fill(printable(text), WIDTH, initial_indent=head, subsequent_indent="      ")
