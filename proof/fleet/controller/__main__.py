"""`make e2e-controller`: the controller on a real API server; writes proof/fleet/controller/controller.md.

etcd, API server, controllers and scheduler on loopback; nodes are Node objects, no kubelet runs. Any user.
"""

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from proof.containers import run
from proof.fleet.controller.fleet import LEASE, Fleet
from proof.fleet.controller.scale import measured
from proof.fleet.controller.steps import BUDGET, NODES, STEPS
from proof.kubernetes.components import programs
from proof.kubernetes.plane import Endpoints, Plane
from proof.kubernetes.programs import Programs
from tools.prose import formatted

PAGE = Path(__file__).with_name("controller.md")
WHERE = Endpoints("127.0.0.1", "127.0.0.1", 16443, (22379, 22380))
# Nothing renews the heartbeat of these nodes' kubelets.
NO_KUBELET = ("--node-monitor-grace-period=24h",)
ABOUT = f"""\
API server, controllers and scheduler are Debian's source package, built here; etcd is Debian's. {NODES} Node
objects, in two pools and eight racks, stand for nodes: their conditions are written as agents write them,
with times of some minutes ago, so that nothing waits. The controller runs as a process with the token of the
chart's ServiceAccount and the rights that the chart renders. Settings, except for the first step:
`dry_run = false`, `period = 2`, budget {BUDGET["cluster"]} of the cluster, {BUDGET["pool"]} of a pool and
{BUDGET["rack"]} of a rack within an hour, {BUDGET["stock"]} in all; the lease is the default, {LEASE} s.

Not shown here: a kubelet ([proof/kubernetes/kubernetes.md](../kubernetes/kubernetes.md)), and Kubernetes
above 1.20, so not the ValidatingAdmissionPolicy, which tests hold against its schema and evaluate
with an implementation of CEL.
"""


def main(words: Sequence[str]) -> int:
    """All steps, or those that are named, without the page."""
    # What is cleaned up at the end is cleaned up then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    missing = [name for name in ("etcd", "kubectl", "openssl") if shutil.which(name) is None]
    if missing:
        print(
            f"e2e-controller: not installed: {', '.join(missing)} (proof/kubernetes/packages)",
            file=sys.stderr,
        )
        return 78
    built = programs()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        running = Programs(folder / "logs")
        plane = Plane(folder / "plane", built, running, WHERE, NO_KUBELET)
        try:
            rows = _steps(Fleet(folder, plane, running), words)
        except BaseException:
            for log in running.logs():
                if not log.stem.startswith(("kube", "etcd")):
                    print(f"--- {log.stem}\n{running.tail(log.stem, 60)}", file=sys.stderr)
            raise
        finally:
            running.stop_all()
    if not words:
        PAGE.write_text(formatted(_page(rows)), "utf-8")
    return 0


def _steps(fleet: Fleet, words: Sequence[str]) -> list[str]:
    began = time.monotonic()
    fleet.plane.up()
    fleet.install()
    fleet.make(NODES)
    print(f"control plane and nodes: {time.monotonic() - began:.1f} s", flush=True)
    rows = []
    for step in (*STEPS, measured):
        if words and step.__name__ not in words:
            continue
        began = time.monotonic()
        told = step(fleet)
        print(f"{step.__name__} ({time.monotonic() - began:.0f} s): {told}", flush=True)
        rows.append(f"| {step.__name__.replace('_', ' ')} | {told.replace('|', '/')} |")
    return rows


def _page(rows: Sequence[str]) -> str:
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    etcd = run("etcd", "--version").splitlines()[0]
    return f"""# The controller on a real API server

Last result of `make e2e-controller`, {day}: all steps passed. Kubernetes v1.20.2, {etcd}.

{ABOUT}
| step | what was seen |
|---|---|
{chr(10).join(rows)}
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
