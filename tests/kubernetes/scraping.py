"""Debian's Prometheus scrapes as the chart's ServiceMonitor says; the operator's part is done here."""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import yaml

from tests.kubernetes.cluster import Cluster, settled
from tests.kubernetes.enclosure import API_ADDRESS
from tests.kubernetes.node import NAME as NODE
from tests.kubernetes.waiting import until
from tests.tools.chart.helm import NAME

ADDRESS = "127.0.0.1:9090"
LABELS = {"job": "wirewatch", "node": NODE, "cluster": "lab"}


def scraped(cluster: Cluster) -> str:
    folder = cluster.folder / "prometheus"
    folder.mkdir()
    monitor = cluster.get("servicemonitor", NAME, "--namespace", NAME)
    rules = cluster.get("prometheusrules", "--namespace", NAME)["items"]
    for one in rules:
        (folder / f"{one['metadata']['name']}.rules.yml").write_text(
            yaml.safe_dump({"groups": one["spec"]["groups"]}), "utf-8"
        )
    (folder / "prometheus.yml").write_text(yaml.safe_dump(_configuration(cluster, monitor)), "utf-8")
    cluster.programs.start(
        "prometheus",
        (
            "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={ADDRESS}", "--log.level=warn",
        ),
    )  # fmt: skip
    pod = settled(cluster)
    (found,) = until("Prometheus has scraped", lambda: query("up == 1") or None, 60)
    labels = {name: value for name, value in found.items() if name in LABELS}
    assert labels == LABELS, found
    assert found["instance"] == f"{pod.ip}:9410", found
    (health,) = until("health is scraped", lambda: query('wirewatch_health{health="ok"} == 1') or None, 30)
    assert {name: health[name] for name in LABELS} == LABELS
    assert query('ALERTS{alertname="WirewatchTargetUnlabelled"}') == []
    groups = sum(len(one["spec"]["groups"]) for one in rules)
    return (
        f"Prometheus found the pod by the Service, asked {found['instance']}, and by the ServiceMonitor's "
        f"relabelings labelled it {', '.join(f'{name}={value}' for name, value in LABELS.items())}; "
        f"it takes the PrometheusRule's {groups} groups"
    )


def query(text: str) -> list[Mapping[str, str]]:
    """Labels of what an expression gives; nothing while Prometheus does not answer."""
    url = f"http://{ADDRESS}/api/v1/query?{urllib.parse.urlencode({'query': text})}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return [one["metric"] for one in json.load(answer)["data"]["result"]]
    except OSError:
        return []


def _configuration(cluster: Cluster, monitor: Mapping[str, Any]) -> dict[str, object]:
    """What the operator makes of it: endpoints of services by label, a port by name, its relabelings."""
    (endpoint,) = monitor["spec"]["endpoints"]
    selected = [
        {
            "action": "keep",
            "source_labels": [f"__meta_kubernetes_service_label_{re.sub(r'[^a-zA-Z0-9_]', '_', label)}"],
            "regex": value,
        }
        for label, value in monitor["spec"]["selector"]["matchLabels"].items()
    ]
    port = {
        "action": "keep",
        "source_labels": ["__meta_kubernetes_endpoint_port_name"],
        "regex": endpoint["port"],
    }
    job = {
        "job_name": f"serviceMonitor/{NAME}/{monitor['metadata']['name']}/0",
        "scrape_interval": endpoint["interval"],
        "scrape_timeout": endpoint["scrapeTimeout"],
        "kubernetes_sd_configs": [
            {
                "role": "endpoints",
                "api_server": f"https://{API_ADDRESS}",
                "namespaces": {"names": [monitor["metadata"]["namespace"]]},
                "authorization": {"credentials": cluster.plane.token},
                "tls_config": {"ca_file": str(cluster.plane.ca)},
            }
        ],
        "relabel_configs": [*selected, port, *map(_snake, endpoint["relabelings"])],
    }
    return {"scrape_configs": [job], "rule_files": [f"{cluster.folder}/prometheus/*.rules.yml"]}


def _snake(relabeling: Mapping[str, object]) -> dict[str, object]:
    return {
        re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key): value
        for key, value in relabeling.items()
    }
