"""Debian's Prometheus scrapes as the chart's ServiceMonitor says; the operator's part is done here.

So is discovery, which Debian builds without Kubernetes: targets have the labels that it would give them, of
what the API server has. Which of them are kept, and as what, is Prometheus' work.
"""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Mapping

import yaml

from proof.kubernetes.cluster import Cluster, Document, settled
from proof.kubernetes.node import NAME as NODE
from tests.waiting import until
from tools.chart.helm import NAME

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
    discovered(cluster)
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
    dropped = _asked("targets?state=dropped")["droppedTargets"]
    assert len(dropped) == 1, "the API server's own endpoint is not ours"
    groups = sum(len(one["spec"]["groups"]) for one in rules)
    return (
        f"of all endpoints Prometheus kept {found['instance']}, scraped it, and by the ServiceMonitor's "
        f"relabelings labelled it {', '.join(f'{name}={value}' for name, value in LABELS.items())}; "
        f"it takes the PrometheusRule's {groups} groups"
    )


def discovered(cluster: Cluster) -> None:
    """Tell Prometheus, which looks at the file, of all endpoints there are now: after a pod is another."""
    groups = []
    for one in cluster.get("endpoints", "--all-namespaces")["items"]:
        space, name = one["metadata"]["namespace"], one["metadata"]["name"]
        service = cluster.get("service", name, "--namespace", space)
        labels = {
            f"__meta_kubernetes_service_label_{_label(key)}": value
            for key, value in service["metadata"].get("labels", {}).items()
        }
        for subset in one.get("subsets", ()):
            for address in (*subset.get("addresses", ()), *subset.get("notReadyAddresses", ())):
                of_node = address.get("nodeName")
                of_pod = {} if of_node is None else {"__meta_kubernetes_pod_node_name": of_node}
                groups += [
                    {
                        "targets": [f"{address['ip']}:{port['port']}"],
                        "labels": {
                            **labels,
                            **of_pod,
                            "__meta_kubernetes_namespace": space,
                            "__meta_kubernetes_endpoint_port_name": port["name"],
                        },
                    }
                    for port in subset["ports"]
                ]
    file = cluster.folder / "prometheus" / "targets.json"
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(groups), "utf-8")
    fresh.rename(file)


def query(text: str) -> list[Mapping[str, str]]:
    """Labels of what an expression gives; nothing while Prometheus does not answer."""
    try:
        found = _asked(f"query?{urllib.parse.urlencode({'query': text})}")["result"]
    except OSError:
        return []
    return [one["metric"] for one in found]


def _asked(path: str) -> Document:
    with urllib.request.urlopen(f"http://{ADDRESS}/api/v1/{path}", timeout=10) as answer:
        data = json.load(answer)["data"]
    assert isinstance(data, dict)
    return data


def _configuration(cluster: Cluster, monitor: Document) -> Document:
    """What the operator makes of it: services by label, a port by name, a namespace, its relabelings."""
    (endpoint,) = monitor["spec"]["endpoints"]
    wanted = {
        f"__meta_kubernetes_service_label_{_label(label)}": value
        for label, value in monitor["spec"]["selector"]["matchLabels"].items()
    }
    wanted["__meta_kubernetes_endpoint_port_name"] = endpoint["port"]
    wanted["__meta_kubernetes_namespace"] = monitor["metadata"]["namespace"]
    kept = [{"action": "keep", "source_labels": [label], "regex": value} for label, value in wanted.items()]
    job = {
        "job_name": f"serviceMonitor/{NAME}/{monitor['metadata']['name']}/0",
        "scrape_interval": endpoint["interval"],
        "scrape_timeout": endpoint["scrapeTimeout"],
        "file_sd_configs": [{"files": [f"{cluster.folder}/prometheus/targets.json"]}],
        "relabel_configs": [*kept, *map(_snake, endpoint["relabelings"])],
    }
    return {"scrape_configs": [job], "rule_files": [f"{cluster.folder}/prometheus/*.rules.yml"]}


def _label(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _snake(relabeling: Mapping[str, object]) -> dict[str, object]:
    return {
        re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key): value
        for key, value in relabeling.items()
    }
