"""One node of a pair, without the gate: nodes that pose share a machine, and would refuse each other.

python3 -m proof.hardware.jobs.pairend PLAN NODE POSITION, the last of the node's GPU among all.
"""

import sys

from wirewatch.cli.hardware import live
from wirewatch.config import Config
from wirewatch.core.types import Absent
from wirewatch_fleet.rounds.answer import encode_answer
from wirewatch_fleet.rounds.peer import PeerRequest, carry_out, peer_order
from wirewatch_fleet.rounds.plan import decode_pair_plan


def main() -> None:
    text, name, position = sys.argv[1:]
    asked = PeerRequest(decode_pair_plan(text), name)
    hardware, nvml = live(Config())
    try:
        listed = () if asked.plan.work.engine == "gloo" else hardware.nvml.gpus()
        if isinstance(listed, Absent):
            sys.exit(f"the GPUs cannot be listed: {listed}")
        ranks = [listed[int(position) % len(listed)].uuid for _ in range(asked.plan.work.gpus)]
        # Without GPUs in the order nobody watches who else comes to them: the other nodes do.
        order = peer_order(hardware, asked, (), ranks or ["cpu:0"])
        print(encode_answer(carry_out(hardware, asked, order)), flush=True)
    finally:
        nvml.stop()


if __name__ == "__main__":
    main()
