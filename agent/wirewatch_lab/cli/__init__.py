"""The commands of the lab; the entry point `lab` of the package names their table."""

from collections.abc import Mapping

from wirewatch.cli.groups import Listed

COMMANDS: Mapping[str, Listed] = {
    "advise": Listed("wirewatch_lab.cli.advise:advise", "Advise on collectives, placement and settings."),
    "compare": Listed("wirewatch_lab.cli.compare:compare", "Say what is different in B, beside A."),
    "parse": Listed(
        "wirewatch_lab.cli.parse:parse",
        "Judge what nccl-tests, NCCL or PyTorch's Flight Recorder wrote into FILE.",
    ),
    "sweep": Listed("wirewatch_lab.cli.sweep:sweep", "Measure collectives over all message sizes."),
}
