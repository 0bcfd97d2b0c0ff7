"""What the controller costs with many nodes."""

import time

from proof.fleet.controller.fleet import Fleet
from tests.waiting import until

MANY = 2000
IMAGES = [
    {"names": [f"registry.example.org/team/image-{n}:v1.2.{n}"], "sizeBytes": 1 << 30} for n in range(50)
]
"""As many as a kubelet reports, so that documents have the size of real ones."""


def measured(fleet: Fleet) -> str:
    for number in range(MANY):
        name = f"m{number:04}"
        fleet.ask("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        fleet._status(name, {"images": IMAGES})  # noqa: SLF001 - the same room
        fleet.ready(name, "True")
        fleet.says(name, "True")
    until("all nodes are in use", lambda: not [name for name in fleet.out() if name[0] == "m"] or None, 300)
    one = fleet.controller("many", dry_run=False)
    one.synced()
    began, cpu = time.monotonic(), one.seconds()
    fleet.says("m0001", "False")
    until(one.log, lambda: "m0001" in fleet.ours() or None)
    took = time.monotonic() - began
    time.sleep(20)
    busy = (one.seconds() - cpu) / (time.monotonic() - began)
    size, nodes = one.memory(), one.metric("nodes")
    one.stop()
    return (
        f"{nodes:.0f} nodes with 50 images each: {size / 2**20:.0f} MiB at most, {100 * busy:.1f} % of a "
        f"processor, "
        f"tainted {took:.1f} s after the condition was written"
    )
