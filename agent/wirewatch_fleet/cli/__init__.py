"""The commands of the fleet; the entry point `fleet` of the package names their table."""

from collections.abc import Mapping

from wirewatch.cli.groups import Listed

COMMANDS: Mapping[str, Listed] = {
    "fleet": Listed("wirewatch_fleet.cli.fleet:fleet", "See and mind many nodes at once."),
}
