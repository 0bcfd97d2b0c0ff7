"""The machine that an advice is about, by options: this node, a recording, a document, or a description."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirewatch.busbw.profiles import NetworkProfile
from wirewatch.cli.options import config_option, replay_options
from wirewatch.core.types import Absent, Unusable
from wirewatch_lab.advice.described import DescriptionError, conditions_of, described, machine_of, network_of
from wirewatch_lab.advice.gpunic.locality import locality_of, read_locality
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.cli.machinenames import HERE, machine_option, named_machine

if TYPE_CHECKING:
    from wirewatch.config import Config
    from wirewatch.core.ports import Hardware
    from wirewatch_lab.study.curve import Study

log = logging.getLogger(__name__)

_SHOWN = 60
"""Characters of a description that a message repeats."""
HEAD = 256
"""Bytes in which a file shows that it is XML."""


@dataclass(frozen=True, slots=True)
class ChosenMachine:
    """The machine that the options choose. `topology`: a recording, a file, or HERE."""

    topology: str | None
    described: str | None
    measured: tuple[Path, ...]
    replay: str | None
    overlays: tuple[str, ...]
    config_file: Path | None

    @classmethod
    def of(cls, machine: str | None, given: Mapping[str, Any]) -> "ChosenMachine":
        """The machine that --machine names, and the other options of `machine_options`."""
        names = ("measured", "replay", "overlays", "config_file")
        return cls(*named_machine(machine), *(given[name] for name in names))

    def read(self) -> AdvisedMachine:
        """Return the machine.

        Raises UsageError: options conflict, or a file cannot be read. Raises Unusable: the machine cannot be
        read.
        """
        from wirewatch.cli.topologies import is_recording

        if self.replay is not None and not (self.topology in {None, HERE} and self.described is None):
            raise click.UsageError("give one of --machine and --replay")
        known = studies(self.measured)
        if self.described is not None:
            try:
                return described(self.described, known)
            except DescriptionError as error:
                raise click.UsageError(f"--machine {self.described[:_SHOWN]!r}: {error}") from error
        if self.topology in {None, HERE}:
            return self._read(self.replay, known)
        if not is_recording(self.topology):
            return of_xml(self.topology, known) or _of_document(self.topology, known)
        return self._read(self.topology, known)

    def _read(self, recording: str | None, studies: "Sequence[Study]") -> AdvisedMachine:
        from wirewatch.collectors.topology import read_topology
        from wirewatch.config import expectations
        from wirewatch.probe.setup import read_scene
        from wirewatch_lab.cli.parse import Node

        with Node(self.config_file, recording, self.overlays).hardware() as (config, hardware):
            name = f"recording {Path(recording).name}" if recording else "this node"
            topology = read_topology(hardware)
            gpus = hardware.nvml.gpus()
            if isinstance(topology, Absent) or isinstance(gpus, Absent) or not gpus:
                why = next((str(one) for one in (topology, gpus) if isinstance(one, Absent)), "it has no GPU")
                raise Unusable(f"{name}: {why}; describe one with --machine, such as 8xH100")
            environment, expect = hardware.probe.settings(), expectations(config)
            scene = read_scene(hardware, gpus, environment, expect, config.probe.pins, network=True)
            conditions = () if isinstance(scene, Absent) else scene.conditions
            own = own_probes(hardware, config, {gpu.uuid for gpu in gpus})
            near = read_locality(hardware.sysfs, topology)
            return AdvisedMachine(name, topology, conditions, (*studies, *own), near)


def machine_options(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add --machine, --measured, --replay, --overlay and --config, for `ChosenMachine.of`."""
    measured = click.option(
        "--measured", multiple=True, type=click.Path(path_type=Path),
        help="What was measured there: the folder of a sweep, or output of nccl-tests; repeatable.",
    )  # fmt: skip
    return machine_option(measured(replay_options(config_option(command))))


def network_options(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add --network and --explain."""
    network = click.option(
        "--network", metavar="NAME",
        help="The network between nodes, such as p5, a3-mega or 8xNDR, where the machine does not show it.",
    )  # fmt: skip
    explain = click.option("--explain", is_flag=True, help="Everything, with reasons and sources.")
    return network(explain(command))


def named_network(name: str | None) -> NetworkProfile | None:
    """Return the network that --network names. Raises UsageError: no network has this name."""
    try:
        return network_of(name) if name else None
    except DescriptionError as error:
        raise click.UsageError(f"--network: {error}") from error


def studies(measured: Sequence[Path]) -> "tuple[Study, ...]":
    """Read measurements: folders of sweeps, and output of nccl-tests."""
    if not measured:
        return ()
    from wirewatch_lab.cli.compare import read_study

    return tuple(map(read_study, measured))


def own_probes(hardware: "Hardware", config: "Config", uuids: Collection[str]) -> "tuple[Study, ...]":
    """Read the node's own probes from its state folder (read-only) or from the recording."""
    from wirewatch.hw.replay import ReplayProbe
    from wirewatch.statefolder import StateError, StateFolder, state_directory
    from wirewatch_lab.study.points import history_study, probes_study

    if isinstance(hardware.probe, ReplayProbe):
        probed = hardware.probe.recorded()
        found = probed if isinstance(probed, Absent) else probes_study([probed], "the recorded probes")
    else:
        try:
            folder = StateFolder(state_directory(config.state.directory))
        except StateError as error:
            click.echo(f"wirewatch: the probes of this node are not read: {error}", err=True)
            return ()
        found = history_study(folder.history, hardware.clock, uuids)
    if isinstance(found, Absent):
        log.info("no probe of this node: %s", found)
        return ()
    return (found,)


def of_xml(name: str, studies: "Sequence[Study]") -> AdvisedMachine | None:
    """Return the machine in NCCL's topology file; None for a file that is not XML.

    Raises UsageError: the file cannot be read, or is other XML.
    """
    from wirewatch_lab.study.topologyxml import NcclGraphs
    from wirewatch_lab.study.topologyxml import read_topology as read_nccl_topology

    path = Path(name)
    try:
        with path.open("rb") as file:
            if not file.peek(HEAD).lstrip().startswith(b"<"):
                return None
            found = read_nccl_topology(file)
    except OSError as error:
        raise click.UsageError(f"{name}: neither a recording nor a document: {error.strerror}") from error
    if isinstance(found, (Absent, NcclGraphs)):
        why = found.detail if isinstance(found, Absent) else "rings and trees, not a topology"
        raise click.UsageError(f"{name}: {why}")
    return machine_of(found, path.name, studies)


def _of_document(name: str, studies: "Sequence[Study]") -> AdvisedMachine:
    from wirewatch.cli.topologies import of_name

    named = of_name(name)
    return AdvisedMachine(
        named.of, named.topology, conditions_of(named.topology), tuple(studies), locality_of(named.topology)
    )
