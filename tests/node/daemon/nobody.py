"""A program that asks a prober as another user: `tests.node.daemon.nobody SOCKET facts|force`.

It prints why it is refused, nothing where it is not.
"""

import os
import sys

from wirewatch.hw.host import SystemClock
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.remote import RemoteProber
from wirewatch.probe.setup import ProbeRequest

NOBODY = 65534


def main() -> None:
    """Ask as nobody."""
    path, ask = sys.argv[1:]
    clock = SystemClock()
    there, soon = RemoteProber(path, clock, live=False), clock.mono() + 20
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    forced = ProbeRequest(ProbeOptions(settle=0.0), "command", force=True)
    told = there.facts("auto", soon) if ask == "facts" else there.run(forced, soon)
    print(getattr(told, "detail", ""))


if __name__ == "__main__":
    main()
