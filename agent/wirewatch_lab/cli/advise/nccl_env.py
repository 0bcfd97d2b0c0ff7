"""`wirewatch advise nccl-env`: which NCCL settings a job should have, and what is wrong with those it has."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from wirewatch.cli.check.answer import EXIT
from wirewatch.cli.groups import examples
from wirewatch.cli.options import WholeNumber
from wirewatch.cli.output import printable, shown
from wirewatch.cli.topologies import is_recording
from wirewatch.core.types import Unusable
from wirewatch.nccl.variables import Version, version
from wirewatch_lab.advice.settings.advice import NCCL_ENV, advise
from wirewatch_lab.advice.settings.check import NCCL_CHECK, Places, check
from wirewatch_lab.advice.settings.measured import Purpose, measured_settings
from wirewatch_lab.advice.settings.node import NOT_READ, NcclNode, described_node, read_node
from wirewatch_lab.cli.advise.machines import ChosenMachine, machine_options
from wirewatch_lab.cli.advise.ncclplaces import (
    library_version,
    of_named_file,
    of_process,
    of_recording,
    of_this_process,
)
from wirewatch_lab.cli.advise.nccltexts import FORMATS, advice_lines, check_lines
from wirewatch_lab.cli.compare import read_study
from wirewatch_lab.cli.parse import Node
from wirewatch_lab.study.curve import Study

TABLE = "table"
PURPOSES = tuple(one.value for one in Purpose)


@dataclass(frozen=True, slots=True)
class SettingsScene:
    """A node, what was measured on it, and the settings that its recording holds, None for no recording."""

    node: NcclNode
    studies: Sequence[Study]
    places: Places | None


def known_version(_context: click.Context, option: click.Parameter, value: str | None) -> Version | None:
    """A callback that reads a version of NCCL.

    Raises:
        BadParameter: it is not a version.
    """
    found = version(value) if value is not None else None
    if value is not None and found is None:
        raise click.BadParameter(f"{printable(value[:40])!r} is not a version, such as 2.28.9", param=option)
    return found


@click.command(
    "nccl-env",
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
@click.pass_context
def nccl_env(
    context: click.Context, *, purpose: str | None, form: str, checking: bool, pid: int | None,
    file: Path | None, nccl: Version | None, as_json: bool, topology: str | None, described: str | None,
    measured: tuple[Path, ...], replay: str | None, overlays: tuple[str, ...], config_file: Path | None,
) -> None:  # fmt: skip
    """Advise on NCCL's environment variables, or check those of a job.

    Nearly all are left to NCCL. One gets a value where NCCL cannot know better, or where a sweep of this node
    (--measured) shows more than its spread in favour of it at the sizes of the purpose: small messages for
    inference, large ones for training.

    With --check it looks at this process, --pid or --file, with the nccl.conf files that NCCL reads. Exit
    codes then: 0 nothing is wrong; 1 something slows, does nothing or does not exist; 2 something fails; 3 it
    is not known.
    """
    chosen = ChosenMachine(topology, described, measured, replay, overlays, config_file)
    if checking:
        if form != TABLE or purpose is not None:
            raise click.UsageError("--for and --format advise; --check says what is wrong")
        if pid is not None and (file is not None or replay is not None):
            raise click.UsageError("--pid is a process of this machine: without --file and --replay")
        context.exit(_check(chosen, pid, file, nccl, as_json=as_json))
    if purpose is None or pid is not None or file is not None:
        raise click.UsageError("give --for inference or --for training, or --check")
    if as_json and form != TABLE:
        raise click.UsageError("give one of --format and --json")
    _advise(chosen, purpose, nccl, form, as_json=as_json)


def _advise(chosen: ChosenMachine, purpose: str, nccl: Version | None, form: str, *, as_json: bool) -> None:
    seen = _see(chosen, nccl)
    made = advise(seen.node, seen.studies, Purpose(purpose), time.time())
    if as_json:
        click.echo(NCCL_ENV.dump_json(made, indent=1).decode())
    elif form == TABLE:
        click.echo(shown(advice_lines(made)))
    else:
        click.echo(FORMATS[form](made), nl=False)


def _check(
    chosen: ChosenMachine, pid: int | None, file: Path | None, nccl: Version | None, *, as_json: bool
) -> int:
    places = of_process(pid) if pid is not None else None if file is None else of_named_file(file)
    if nccl is None and pid is not None:
        nccl = library_version(pid)
    try:
        seen = _see(chosen, nccl)
    except Unusable:
        if chosen.replay or chosen.topology or chosen.described:
            raise
        seen = SettingsScene(NcclNode(nccl=nccl), tuple(map(read_study, chosen.measured)), None)
    if pid is not None:
        # Its network namespace may be another one.
        seen = replace(seen, node=replace(seen.node, interfaces=NOT_READ))
    document, worst = check(
        places or seen.places or of_this_process(), seen.node, measured_settings(seen.studies), time.time()
    )
    if as_json:
        click.echo(NCCL_CHECK.dump_json(document, indent=1).decode())
    else:
        click.echo(shown(check_lines(document)))
    return EXIT[worst]


def _see(chosen: ChosenMachine, nccl: Version | None) -> SettingsScene:
    """The machine that the options name.

    Raises:
        UsageError, Unusable: as `ChosenMachine.read`.
    """
    machine = chosen.read()
    said = (version(study.environment.get("nccl", "")) for study in machine.measured)
    nccl = nccl or next((one for one in said if one), None)
    recording = chosen.topology if chosen.topology and is_recording(chosen.topology) else chosen.replay
    if chosen.described is not None or (chosen.topology is not None and recording is None):
        return SettingsScene(described_node(machine, nccl), machine.measured, None)
    with Node(chosen.config_file, recording, chosen.overlays).hardware() as (_, hardware):
        places = of_recording(hardware, machine.of) if recording else None
        return SettingsScene(read_node(hardware, machine, nccl), machine.measured, places)
