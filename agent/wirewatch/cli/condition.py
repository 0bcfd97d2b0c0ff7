"""Whether and how `wirewatch serve` tells Kubernetes the node condition, by the configuration."""

import logging
import os

from wirewatch.config import Config
from wirewatch.core.ports import Hardware
from wirewatch.daemon.nodecondition import Manner, Teller
from wirewatch.kubernetes.api import place
from wirewatch.kubernetes.condition import TYPE, Holds

log = logging.getLogger(__name__)


def teller(config: Config, hardware: Hardware) -> Teller | None:
    """Who tells it, None when it is switched off.

    Raises:
        PlaceError: node or API server are not told.
    """
    options = config.kubernetes
    if not options.node_condition:
        return None
    where = place(options.api_server, options.credentials, options.node, os.environ)
    holds = Holds(
        options.condition_failed_after, options.condition_unknown_after, options.condition_recovered_after
    )
    recording = "" if hardware.source == "live" else hardware.about
    if recording:
        log.warning("node %s gets its condition from a recording, as it was told to", where.node)
    log.info("condition %s of node %s goes to %s:%d", TYPE, where.node, where.host, where.port)
    return Teller(where, Manner(holds, options.condition_heartbeat, recording=recording), hardware.clock)
