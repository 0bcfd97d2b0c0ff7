"""A worker whose second rank is in another network namespace: `twoends.py PYTHON FAR DOCUMENT MARKS`.

PYTHON has torch. An empty FAR leaves both ranks here.
"""

import json
import os
import subprocess
import sys

PORT = 29_600
PATIENCE = 30.0


def main() -> None:
    python, far, document, marks = sys.argv[1:5]
    worker = (python, "-m", "wirewatch.worker")
    pipes = (int(document), int(marks))
    if not far:
        sys.exit(subprocess.run([*worker, document, marks], check=False, pass_fds=pipes).returncode)
    plan = json.loads(sys.stdin.readline())
    interface = dict(plan["environment"])["GLOO_SOCKET_IFNAME"]
    told = subprocess.run(
        ["ip", "-4", "-j", "addr", "show", "dev", interface], check=True, capture_output=True, text=True
    )
    host = json.loads(told.stdout)[0]["addr_info"][0]["local"]
    nothing = os.open(os.devnull, os.O_WRONLY)
    there = (str(nothing), str(nothing))
    commands = (
        (*worker, document, marks),
        ("nsenter", f"--net=/run/netns/{far}", *worker, *there),
    )
    ranks = []
    for node, command in enumerate(commands):
        meeting = {"host": host, "port": PORT, "node": node, "nodes": 2, "patience": PATIENCE}
        one = {**plan, "gpus": [plan["gpus"][node]], "pauses": False, "meeting": meeting}
        # A rank begins NCCL's log anew, whatever another has written there.
        variables = {**os.environ, "NCCL_DEBUG_FILE": f"{plan['log']}.{node}"}
        rank = subprocess.Popen(
            command, stdin=subprocess.PIPE, text=True, pass_fds=(*pipes, nothing), env=variables
        )
        assert rank.stdin is not None
        rank.stdin.write(f"{json.dumps(one)}\n")
        rank.stdin.flush()
        ranks.append(rank)
    sys.exit(ranks[0].wait())


if __name__ == "__main__":
    main()
