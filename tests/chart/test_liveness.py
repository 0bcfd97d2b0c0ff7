"""What the kubelet runs in the prober's container to learn whether it lives, against a real prober."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.chart.documents import KUBERNETES, container, pod_of, read
from tests.node.daemon.proberprocess import DEMO, ProberProcess
from tests.patience import HANGS

PROBE = container(pod_of(read(KUBERNETES / "default.yaml")), "prober")["livenessProbe"]


def lives(socket: str) -> bool:
    program, *rest = PROBE["exec"]["command"]
    assert (program, rest[0]) == ("python3", "-ISc")
    code = rest[1].replace("/run/wirewatch/prober.sock", socket).replace("settimeout(8)", "settimeout(1)")
    assert socket in code
    done = subprocess.run([sys.executable, rest[0], code], capture_output=True, timeout=HANGS, check=False)
    return done.returncode == 0


def test_a_prober_whose_loop_stands_still_is_found(tmp_path: Path) -> None:
    with ProberProcess(tmp_path, ("--replay", DEMO)) as prober:
        assert lives(prober.socket)
        prober.process.send_signal(signal.SIGSTOP)
        assert not lives(prober.socket)
        prober.process.send_signal(signal.SIGCONT)
        assert lives(prober.socket)
    assert not lives(prober.socket)
