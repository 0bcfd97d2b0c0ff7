"""Debian's Alertmanager with the example's inhibition: what is kept quiet by what."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.alerting import PROMETHEUS

pytestmark = pytest.mark.system

Labels = Mapping[str, str]
NODE = {"cluster": "lab", "node": "gpu-17"}
RACK = {"cluster": "lab", "rack": "r01"}
SILENT = {"rule": "agent.down"}
AT = {**NODE, **RACK, "leaf": "l1"}
PORT = {"rule": "infiniband.port_down", "device": "mlx5_3", "port": "1"}
LISTED = {"device_class": "mlx", "onset": "1764390000", "scope": "leaf l1"}
GPU = {**NODE, "gpu": "2", "uuid": "GPU-2"}


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """The address of one that runs on the example's configuration."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    words = [
        "prometheus-alertmanager", f"--config.file={PROMETHEUS / 'alertmanager.yml'}", "--log.level=error",
        f"--storage.path={folder}", f"--web.listen-address={address}", "--cluster.listen-address=",
    ]  # fmt: skip
    with subprocess.Popen(words) as process:
        try:
            wait_for(f"http://{address}/-/ready")
            yield f"http://{address}/api/v2/alerts"
        finally:
            process.terminate()


def wait_for(url: str) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < end, "Alertmanager does not answer"
            time.sleep(0.1)
        else:
            return


def notified(url: str, alerts: Sequence[Labels]) -> set[str]:
    """Names of the alerts that are not kept quiet, once Alertmanager has read all of these.

    It answers with an alert before its inhibitor has read the one that keeps it quiet. The inhibitor reads
    alerts in order: once it has read a pair that comes last, it has read all.
    """
    post(url, alerts)
    post(url, LAST)
    end = time.monotonic() + 20
    while True:
        with urllib.request.urlopen(url, timeout=5) as answer:
            known = json.load(answer)
        quiet = [one["labels"] for one in known if one["status"]["inhibitedBy"]]
        if LAST[1] in quiet:
            assert len(known) == len(alerts) + len(LAST)
            heard = (one["labels"] for one in known if one["labels"] not in [*quiet, LAST[0]])
            return {labels["alertname"] for labels in heard}
        assert time.monotonic() < end, known
        time.sleep(0.1)


def post(url: str, alerts: Sequence[Labels]) -> None:
    body = json.dumps([{"labels": dict(one)} for one in alerts]).encode()
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    urllib.request.urlopen(asked, timeout=5).close()


def alert(name: str, severity: str, where: Labels) -> Labels:
    return {"alertname": name, "severity": severity, **where}


LAST = [
    alert("WirewatchLast", severity, {"cluster": "last", "node": "last"})
    for severity in ("critical", "ticket")
]


@pytest.mark.parametrize(
    ("alerts", "heard"),
    [
        (
            [
                alert("WirewatchNVLinkDown", "critical", {**GPU, "link": "7"}),
                alert("WirewatchTopologyDrift", "critical", {**GPU, "rule": "topology.gpu_lost"}),
                alert("WirewatchNVLinkErrors", "ticket", GPU),
                alert("WirewatchPortErrors", "ticket", {**NODE, "node": "gpu-18"}),
                alert("SomebodyElses", "ticket", NODE),
            ],
            {"WirewatchNVLinkDown", "WirewatchPortErrors", "SomebodyElses"},
        ),
        (
            [
                alert("WirewatchXidReboot", "critical", GPU),
                alert("WirewatchGPULost", "critical", {**GPU, "uuid": "GPU-3"}),
                alert("WirewatchXidRecovery", "critical", GPU),
            ],
            {"WirewatchXidReboot", "WirewatchGPULost"},
        ),
        (
            [
                alert("WirewatchCollectorFailing", "ticket", {**NODE, "collector": "gpu"}),
                alert("WirewatchNodeUnknown", "ticket", NODE),
                alert("WirewatchFleetBlind", "critical", {"cluster": "lab"}),
                alert("WirewatchNodeUnwatched", "ticket", {**NODE, "node": "gpu-18"}),
                alert("WirewatchProbeStale", "ticket", {**NODE, "node": "gpu-18"}),
            ],
            {"WirewatchCollectorFailing", "WirewatchFleetBlind", "WirewatchProbeStale"},
        ),
        # A fleet that has been blind for days keeps no agent quiet that falls silent now.
        (
            [
                alert("WirewatchFleetBlind", "critical", {"cluster": "lab"}),
                alert("WirewatchSharedOnset", "ticket", {**NODE, **SILENT}),
                alert("WirewatchAgentDown", "ticket", {**NODE, **SILENT}),
                alert("WirewatchAgentRestarting", "ticket", {**NODE, "node": "gpu-19"}),
            ],
            {"WirewatchFleetBlind", "WirewatchSharedOnset", "WirewatchAgentRestarting"},
        ),
        (
            [
                alert("WirewatchFleetBlind", "critical", {"cluster": "lab"}),
                alert("WirewatchSharedOnset", "ticket", {**NODE, **SILENT}),
                alert("WirewatchAgentDown", "ticket", {**NODE, **SILENT, "node": "gpu-18"}),
            ],
            {"WirewatchFleetBlind", "WirewatchSharedOnset", "WirewatchAgentDown"},
        ),
        # Nor does a rack.
        (
            [
                alert("WirewatchRackOrLeafSilent", "critical", RACK),
                alert("WirewatchSharedOnset", "ticket", {**NODE, **RACK, **SILENT}),
                alert("WirewatchAgentDown", "ticket", {**NODE, **RACK, **SILENT}),
            ],
            {"WirewatchRackOrLeafSilent"},
        ),
        (
            [
                alert("WirewatchRackOrLeafSilent", "critical", RACK),
                alert("WirewatchAgentDown", "ticket", {**NODE, **RACK, **SILENT, "node": "gpu-18"}),
            ],
            {"WirewatchRackOrLeafSilent", "WirewatchAgentDown"},
        ),
        ([alert("WirewatchTopologyDrift", "critical", NODE)], {"WirewatchTopologyDrift"}),
        # A finding that is listed is reported once; another on its node, and the same elsewhere, is heard.
        (
            [
                alert("WirewatchSharedOnset", "critical", {**AT, **PORT, **LISTED}),
                alert("WirewatchSharedOnset", "ticket", {**AT, **PORT, **LISTED}),
                alert("WirewatchPortDown", "critical", {**AT, **PORT}),
                alert("WirewatchXidReboot", "critical", {**GPU, **RACK, "leaf": "l1", "rule": "xid.79"}),
                alert("WirewatchFabric", "critical", {**AT, "node": "gpu-18", "rule": "fabric.state"}),
                alert("WirewatchCapacityLow", "ticket", {"cluster": "lab"}),
            ],
            {"WirewatchSharedOnset", "WirewatchXidReboot", "WirewatchFabric", "WirewatchCapacityLow"},
        ),
        (
            [
                alert("WirewatchSharedOnset", "critical", {**AT, **PORT, **LISTED}),
                alert("WirewatchPortDown", "critical", {**AT, **PORT, "port": "2"}),
                alert("WirewatchPortSlow", "critical", {**AT, **PORT, "node": "gpu-19"}),
            ],
            {"WirewatchSharedOnset", "WirewatchPortDown", "WirewatchPortSlow"},
        ),
        (
            [
                alert("WirewatchSharedOnset", "ticket", {**AT, **PORT, **LISTED}),
                alert("WirewatchPortDown", "critical", {**AT, **PORT, "node": "gpu-18"}),
                alert("WirewatchPortErrors", "ticket", {**AT, **PORT}),
            ],
            {"WirewatchSharedOnset", "WirewatchPortDown"},
        ),
        (
            [
                alert("WirewatchSharedOnset", "ticket", {**AT, **PORT, **LISTED}),
                alert("WirewatchPortDown", "critical", {**AT, **PORT}),
            ],
            {"WirewatchPortDown"},
        ),
        (
            [
                alert("WirewatchSharedOnset", "critical", {**AT, **PORT, **LISTED}),
                alert("WirewatchSharedOnset", "critical", {**AT, **LISTED, "rule": "topology.port"}),
                alert("WirewatchRackOrLeafSilent", "critical", RACK),
            ],
            {"WirewatchSharedOnset", "WirewatchRackOrLeafSilent"},
        ),
        # What somebody has seen is not reported again; seen as a ticket, its page is news.
        (
            [
                alert("WirewatchAcknowledged", "info", {**GPU, "rule": "xid.79", "covers": "critical"}),
                alert("WirewatchXidReboot", "critical", {**GPU, "rule": "xid.79"}),
                alert("WirewatchXidReset", "critical", {**GPU, "rule": "xid.48"}),
                alert("WirewatchXidReboot", "critical", {**GPU, "node": "gpu-18", "rule": "xid.79"}),
            ],
            {"WirewatchXidReset", "WirewatchXidReboot"},
        ),
        (
            [
                alert("WirewatchAcknowledged", "info", {**GPU, "rule": "xid.48", "covers": "ticket"}),
                alert("WirewatchXidReset", "ticket", {**GPU, "rule": "xid.48"}),
                alert("WirewatchNodeUnknown", "ticket", NODE),
            ],
            {"WirewatchNodeUnknown", "WirewatchAcknowledged"},
        ),
        (
            [
                alert("WirewatchAcknowledged", "info", {**GPU, "rule": "xid.48", "covers": "ticket"}),
                alert("WirewatchXidReset", "critical", {**GPU, "rule": "xid.48"}),
            ],
            {"WirewatchXidReset"},
        ),
        # One cluster, which has no name.
        (
            [
                alert("WirewatchFleetBlind", "critical", {}),
                alert("WirewatchCapacityLow", "critical", {}),
                alert("WirewatchAgentDown", "ticket", {"node": "gpu-18"}),
                alert("WirewatchNodeUnwatched", "ticket", {"node": "gpu-19"}),
                alert("WirewatchAgentDown", "ticket", {**NODE, "node": "gpu-20"}),
            ],
            {"WirewatchFleetBlind", "WirewatchAgentDown"},
        ),
    ],
)
def test_one_cause_is_reported_once(alerts: Sequence[Labels], heard: set[str], tmp_path: Path) -> None:
    with alertmanager(tmp_path) as url:
        assert notified(url, alerts) == heard
