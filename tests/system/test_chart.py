"""The chart in Helm's own engine; what it renders against the schemas of Kubernetes and of its operators."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import closing
from itertools import permutations, product
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml

from tests.chart.documents import (
    KUBERNETES,
    Document,
    by_pool,
    configuration,
    container,
    containers,
    documents,
    of_kind,
    ours,
    pod_of,
    read,
    the,
)
from tests.chart.policies import selects
from tests.chart.rules import OPEN, PRIVILEGED, RULES, broken
from tests.node.jobs.ringfiles import RingWriter
from tests.system.matrix import ASKED_FOR, CONFIG, MATRIX, MONITORED, REFUSED, UNLIMITED
from tools.alerting import FLEET_DASHBOARD, NODE_DASHBOARD, alerts
from tools.chart.helm import NOTES, Refused, complaints, hooks, manifest, rendered
from tools.chart.made import CHART
from tools.chart.manifests import manifests
from tools.chart.readme import thresholds
from wirewatch.catalogue import discover
from wirewatch.config import JobsSection, load
from wirewatch.core.jobs import RingsReading
from wirewatch.jobs.tap.rings import FileRings
from wirewatch.jobs.tap.tapfile import LIBRARY

pytestmark = pytest.mark.system
VERSIONS = ("1.29", "1.37")
POLICIES_SINCE = "1.30"
OPERATOR = Path(__file__).with_name("operator")
OPENSHIFT = "SecurityContextConstraints"
OPERATORS = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
sets = pytest.mark.parametrize(("name", "values"), MATRIX.items(), ids=MATRIX)


def schema_errors(given: Sequence[Document], version: str) -> list[str]:
    """What Kubernetes' schemas say, unknown keys included; a kind without a schema is an error."""
    told = []
    for document in given:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            told.append(f"{document['kind']}: {error.message}")
    return told


def operator_errors(given: Sequence[Document]) -> list[str | None]:
    """What the operator's schemas say of each document."""
    done = subprocess.run(
        ["node", "validate.mjs"],
        cwd=OPERATOR,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    said: list[str | None] = json.loads(done.stdout)
    return said


def natives(given: Sequence[Document]) -> list[Document]:
    return [document for document in given if document["kind"] not in OPERATORS | {OPENSHIFT}]


def test_deploy_kubernetes_is_what_helm_renders() -> None:
    """Else: `make generated`."""
    for path, text in manifests().items():
        assert path.read_text("utf-8") == text, path


@sets
def test_a_set_of_values_renders_to_what_kubernetes_takes(
    name: str, values: dict[str, Any], tmp_path: Path
) -> None:
    assert complaints(values) == []
    texts = rendered(values)
    given = documents(manifest(values))
    for one in by_pool(given):
        assert sorted(broken(ours(one))) == sorted(ASKED_FOR.get(name, []))
        file = tmp_path / "wirewatch.toml"
        file.write_text(configuration(one), "utf-8")
        load(file, discover())
    ids = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in given]
    assert len(set(ids)) == len(ids)
    with_policy = any(one["kind"].startswith("ValidatingAdmission") for one in given)
    for version in (POLICIES_SINCE, VERSIONS[-1]) if with_policy else VERSIONS:
        assert schema_errors([*natives(given), *documents(hooks(values))], version) == []
    assert "kubectl" in texts[NOTES]
    operators = [document for document in given if document["kind"] in OPERATORS]
    assert operators == [] or operator_errors(operators) == [None] * len(operators)


def test_jobs_write_where_the_agent_reads_and_load_what_root_has_put_there(tmp_path: Path) -> None:
    given = documents(manifest(MATRIX["jobs"]))
    pod, job = pod_of(given), the(read(EXAMPLES / "timed-job.yaml"), "Job")["spec"]["template"]["spec"]
    file = tmp_path / "wirewatch.toml"
    file.write_text(configuration(given), "utf-8")
    read_at = load(file, discover())[0].jobs.rings
    ours = {one["name"]: one.get("hostPath", {}).get("path") for one in pod["volumes"]}
    theirs = {one["name"]: one["hostPath"]["path"] for one in job["volumes"]}
    assert theirs == {"rings": f"{ours['jobs']}/pods", "tap": ours["tap"]}
    for name in ("agent", "folders"):
        assert {"name": "jobs", "mountPath": read_at} in container(pod, name)["volumeMounts"]
    (within,) = job["containers"]
    assert [mount["mountPath"] for mount in within["volumeMounts"]] == [theirs["tap"], JobsSection().rings]
    assert within["volumeMounts"][1]["subPathExpr"] == "$(POD_UID)", "its own folder and no other"
    assert within["env"][1] == {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    assert within["env"][0]["value"] == f"{theirs['tap']}/{LIBRARY}"
    assert [one["name"] for one in pod["initContainers"]] == ["mount", "folders", "tap"]
    assert container(pod, "tap")["args"] == ["jobs", "install", f"/host{theirs['tap']}"]


def script(pod: Document, name: str, folder: Path) -> list[str]:
    one = container(pod, name)
    return [word.replace("/run/wirewatch-jobs", str(folder)) for word in (*one["command"], *one["args"])]


@pytest.mark.parametrize("there", ["nothing", "a folder of the kubelet's", "folders of 0.2"])
def test_a_pod_gets_a_folder_that_its_users_write_to_and_the_agent_clears(there: str) -> None:
    """The script of the container as it is, then the folder of a pod as the kubelet makes it below."""
    pod = pod_of(documents(manifest(MATRIX["jobs, no state, no prober"])))
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        folder = Path(above) / "jobs"
        folder.mkdir(mode=0o755)
        if there == "a folder of the kubelet's":
            (folder / "pods").mkdir(mode=0o755)
        if there == "folders of 0.2":
            (folder / "rings").mkdir()
            os.chown(folder / "rings", 65532, 65532)
            (folder / "rings").chmod(0o3773)
        words = script(pod, "folders", folder)
        subprocess.run(words, check=True, user=0, group=65532, extra_groups=[], umask=0o022)
        pods = folder / "pods"
        found = [one.stat() for one in (folder, pods)]
        modes = [(one.st_uid, one.st_gid, one.st_mode & 0o7777) for one in found]
        assert modes == [(0, 65532, 0o750), (0, 65532, 0o2773)]
        # The kubelet makes the folder with the mode of the one above, umask or not.
        own = pods / "0b0e6a8e-0000-4000-8000-00000000000a"
        own.mkdir()
        own.chmod(pods.stat().st_mode & 0o7777)
        with RingWriter(own / "x.ring"), closing(FileRings(folder)) as port:
            read = port.poll({})
            assert isinstance(read, RingsReading)
            assert [one.ring.owner for one in read.rings] == [f"pod:{own.name}"]
            assert read.refused == ()
            assert (own / "x.ring").stat().st_gid == 65532, "the agent's group reads it"


@pytest.mark.parametrize("there", ["no mount", "a mount", "rings of jobs that run"])
def test_rings_get_a_size_of_their_own_where_they_have_none(there: str) -> None:
    """The container's script in a namespace of mounts, where its folder is a mount as it is there."""
    pod = pod_of(documents(manifest(MATRIX["jobs, no state, no prober"])))
    with tempfile.TemporaryDirectory() as above:
        folder = Path(above) / "jobs"
        folder.mkdir()
        ring = "touch $0/old.ring" if there == "rings of jobs that run" else "true"
        own = "mount -t tmpfs -o size=8m other $0" if there == "a mount" else "true"
        lines = (
            f"set -e; mount -t tmpfs run {above}; mkdir $0; {own}; {ring}; mount --bind $0 $0; "
            '"$@"; stat -f -c %b $0; grep -c " $0 " /proc/self/mountinfo; ls $0'
        )
        words = ["unshare", "--mount", "sh", "-c", lines, str(folder), *script(pod, "mount", folder)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        blocks, mounts, *names = done.stdout.split()
    page = os.sysconf("SC_PAGE_SIZE")
    made = there == "no mount"
    assert (int(blocks) * page == 1 << 30) is made
    assert int(mounts) == (1 if there == "rings of jobs that run" else 2)
    assert names == (["old.ring"] if there == "rings of jobs that run" else [])


def test_without_a_size_nothing_is_mounted_and_nothing_privileged() -> None:
    values = {"jobs": {"hostPath": "/run/wirewatch-jobs", "size": ""}}
    assert [one["name"] for one in pod_of(documents(manifest(values)))["initContainers"]] == ["folders"]


@pytest.mark.parametrize(("values", "told"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_value_is_refused_with_its_path(values: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused) as caught:
        rendered(values)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("release", "values", "told"),
    [
        (
            "r" * 53,
            {"fullnameOverride": "w", "pools": [{"name": "tenletters", "nodeSelector": {"x": "1"}}]},
            "a shorter name",
        ),
        ("a.b", {}, "cannot be a Service"),
        ("9gpus", {}, "cannot be a Service"),
    ],
)
def test_a_release_whose_names_kubernetes_would_refuse_is_refused(
    release: str, values: dict[str, Any], told: str
) -> None:
    with pytest.raises(Refused, match=told):
        rendered(values, release=release)


def labels_and_names(given: Sequence[Document]) -> list[str]:
    """Labels, and names of Services, that are too long for Kubernetes; schemas do not know them."""
    parts = [one["metadata"] for one in given]
    parts += [one["spec"]["template"]["metadata"] for one in given if "template" in one.get("spec", {})]
    return [
        *(value for part in parts for value in part["labels"].values() if len(value) > 63),
        *(one["metadata"]["name"] for one in of_kind(given, "Service") if len(one["metadata"]["name"]) > 63),
    ]


@pytest.mark.parametrize("values", [{"nameOverride": "b" * 63}, {"fullnameOverride": "a" * 63}])
def test_a_long_name_makes_no_long_label(values: dict[str, Any]) -> None:
    every = {**values, "controller": {"enabled": True}, "dashboards": {"enabled": True}}
    given = [*documents(manifest(every)), *documents(hooks(every))]
    assert labels_and_names(given) == []


def test_labels_are_on_everything_once_and_what_is_said_of_one_kind_goes_first() -> None:
    given = [*documents(manifest(MATRIX["labels on everything"])), *documents(hooks({}))]
    own = {"PodMonitor": "prometheus", "PrometheusRule": "prometheus"}
    for one in of_kind(given, "ConfigMap"):
        board = "grafana_dashboard" in one["metadata"]["labels"] and "wirewatch.toml" not in one["data"]
        assert one["metadata"]["labels"]["grafana_dashboard"] == ("1" if board else "no")
    for one in documents(manifest(MATRIX["labels on everything"])):
        labels = one["metadata"]["labels"]
        board = labels.get("grafana_dashboard") == "1"
        assert labels["team"] == ("grafana" if board else own.get(one["kind"], "gpu")), one["metadata"]
        if "template" in one.get("spec", {}):
            assert one["spec"]["template"]["metadata"]["labels"]["team"] == "gpu"
    monitors = of_kind(given, "PodMonitor")
    assert [one["metadata"]["name"] for one in monitors] == ["wirewatch-controller", "wirewatch"]
    for one in monitors:
        assert one["metadata"]["namespace"] == "monitoring"
        assert one["spec"]["namespaceSelector"] == {"matchNames": ["wirewatch"]}


def test_a_key_that_is_there_twice_is_found() -> None:
    with pytest.raises(ValueError, match=r"twice: .'a'."):
        documents("kind: X\nmetadata: [{a: 1, a: 2}]\n")


def test_a_pools_tag_goes_before_the_digest_of_all_and_its_rollout_before_theirs() -> None:
    given = list(by_pool(documents(manifest(MATRIX["a pool of another tag and another rollout"]))))
    rest, first, second, third = [the(one, "DaemonSet")["spec"] for one in given]
    digest = f"wirewatch@sha256:{'0a' * 32}"
    images = [container(pod_of(one), "agent")["image"] for one in given]
    assert images == [digest, "wirewatch:1.2", digest, digest]
    default = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
    assert rest["updateStrategy"] == third["updateStrategy"] == {"type": "OnDelete"}
    assert first["updateStrategy"] == {**default, "rollingUpdate": {"maxUnavailable": 3}}
    assert second["updateStrategy"] == default
    assert "tolerations" not in pod_of(given[3])
    assert "pod-resources" not in {one["name"] for one in pod_of(given[3])["volumes"]}


def test_numbers_of_nodes_are_whole() -> None:
    strategy = the(documents(manifest(MATRIX["all at once"])), "DaemonSet")["spec"]["updateStrategy"]
    assert strategy["rollingUpdate"] == {"maxUnavailable": 1000000}


def test_a_time_that_is_none_is_reported_once() -> None:
    with pytest.raises(Refused) as caught:
        rendered({"prometheusRule": {"alerts": {"WirewatchGPULost": {"for": "5 minutes"}}}})
    assert str(caught.value).count("is not a time") == 1


def test_numbers_of_users_are_whole_for_the_controller_too() -> None:
    context = the(documents(manifest(MATRIX["controllers apart"])), "Deployment")["spec"]["template"]["spec"][
        "securityContext"
    ]
    found = [context[key] for key in ("runAsUser", "runAsGroup", "fsGroup")]
    assert found == [1000700000] * 3
    assert {type(one) for one in found} == {int}


def test_only_who_asks_for_a_privileged_agent_gets_one() -> None:
    given = documents(manifest({"agent": {"privileged": True}}))
    others = [rule for rule in RULES if rule not in PRIVILEGED]
    assert broken(given, others) == []
    assert "no_privileges: agent: privileged" in broken(given, PRIVILEGED)
    assert [told for told in broken(given) if "prober" in told or "folders" in told] == []
    assert schema_errors(given, VERSIONS[1]) == []


@pytest.mark.parametrize("values", UNLIMITED.values(), ids=UNLIMITED)
def test_only_who_asks_for_an_open_port_gets_one_and_is_told(values: dict[str, Any]) -> None:
    assert complaints(values) == []
    given = documents(manifest(values))
    assert broken(given, [rule for rule in RULES if rule not in OPEN]) == []
    assert broken(given, OPEN) != []
    assert schema_errors(given, VERSIONS[1]) == []
    assert "very pod of the cluster may connect to port 9410" in rendered(values)[NOTES]


def test_who_installs_is_told_who_may_scrape_and_what_happens_to_others() -> None:
    notes = " ".join(rendered({})[NOTES].split())
    assert "Who may scrape port 9410" in notes
    assert "kubectl get pods --all-namespaces -l 'app.kubernetes.io/name in (prometheus, " in notes
    assert "WirewatchAgentDown and WirewatchFleetBlind fire: set networkPolicy.from" in notes
    assert {"WirewatchAgentDown", "WirewatchFleetBlind"} <= {one.name for one in alerts()}


def test_the_schemas_find_what_is_wrong() -> None:
    given = [*documents(manifest(MONITORED))]
    pod_of(given)["hostPid"] = True
    the(given, "NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"] = ["metrics"]
    the(given, "ServiceMonitor")["spec"]["endpoints"][0]["interval"] = "15 seconds"
    of_kind(given, "PrometheusRule")[0]["spec"]["groups"][0]["rules"][0]["expr"] = None
    for version in VERSIONS:
        assert [told.partition(":")[0] for told in schema_errors(natives(given), version)] == [
            "DaemonSet",
            "NetworkPolicy",
        ]
    operators = [document for document in given if document["kind"] in OPERATORS]
    assert len([told for told in operator_errors(operators) if told]) == 2


EXAMPLES = KUBERNETES / "examples"


@pytest.mark.parametrize("name", ["admission-policy", "gate-init-container", "namespace", "timed-job"])
def test_the_examples_of_kubernetes_own_kinds_are_of_its_schemas(name: str) -> None:
    given = read(EXAMPLES / f"{name}.yaml")
    assert given
    assert schema_errors(given, VERSIONS[-1]) == []


@pytest.mark.parametrize(
    ("when", "values", "policed"),
    [
        ("always", {}, True),
        ("never", {}, False),
        ("auto", {}, False),
        ("always", {"enabled": False}, False),
    ],
)
def test_an_agent_is_held_to_its_node_where_that_is_wished(
    when: str, values: dict[str, Any], *, policed: bool
) -> None:
    """helm's engine here knows no cluster: `auto` finds no such policies."""
    made = documents(manifest({"nodeCondition": {"admissionPolicy": when, **values}}))
    kinds = [one["kind"] for one in made if one["kind"].startswith("ValidatingAdmission")]
    both = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    assert kinds == (both if policed else [])


def test_the_policy_is_about_the_account_and_names_of_the_release() -> None:
    values = {
        "fullnameOverride": "ib", "serviceAccount": {"create": False, "name": "theirs"},
        "nodeCondition": {"admissionPolicy": "always"},
    }  # fmt: skip
    given = documents(manifest(values))
    policy, binding = (the(given, f"ValidatingAdmissionPolicy{end}") for end in ("", "Binding"))
    (match,) = policy["spec"]["matchConditions"]
    assert match["expression"] == 'request.userInfo.username == "system:serviceaccount:wirewatch:theirs"'
    assert policy["metadata"]["name"] == binding["metadata"]["name"] == "ib-own-condition"
    assert binding["spec"] == {"policyName": "ib-own-condition", "validationActions": ["Deny"]}
    assert the(given, "DaemonSet")["spec"]["template"]["spec"]["serviceAccountName"] == "theirs"


def test_the_schemas_find_what_is_wrong_in_the_admission_policy() -> None:
    given = read(EXAMPLES / "admission-policy.yaml")
    the(given, "ValidatingAdmissionPolicy")["spec"]["validations"][0]["expresion"] = "true"
    the(given, "ValidatingAdmissionPolicyBinding")["spec"]["validationActions"] = "Deny"
    kinds = [told.partition(":")[0] for told in schema_errors(given, VERSIONS[-1])]
    assert kinds == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]


def test_a_new_configuration_restarts_the_pods_and_nothing_else_does() -> None:
    def template(values: dict[str, Any]) -> Any:
        return the(documents(manifest(values)), "DaemonSet")["spec"]["template"]

    before, after = template({}), template(CONFIG)
    assert before != after
    assert before["spec"] == after["spec"]
    assert template({}) == template({**UNLIMITED["everybody"], **MONITORED}) == before


def test_what_is_selected_is_the_same_for_all_values() -> None:
    """A selector cannot be changed: an upgrade that tries fails."""
    selectors = {
        json.dumps(of_kind(documents(manifest(values)), "DaemonSet")[0]["spec"]["selector"])
        for name, values in MATRIX.items()
        if name != "names"
    }
    assert len(selectors) == 1


def test_a_package_is_the_whole_chart(tmp_path: Path) -> None:
    with helm_python.Chart.load(str(CHART)) as chart:
        chart.save(str(tmp_path))
    (package,) = tmp_path.glob("wirewatch-*.tgz")
    assert rendered(MATRIX["monitored"], package) == rendered(MATRIX["monitored"])
    held = subprocess.run(["tar", "tzf", package], capture_output=True, text=True, check=True).stdout.split()
    assert "wirewatch/README.md" in held
    assert "wirewatch/README.in.md" not in held
    # A release is kept in a Secret, base64 of this and what was rendered: at most a mebibyte.
    assert package.stat().st_size < 200_000


LINKED = {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
ON_HOST = {**LINKED, "hostNetwork": True}


def boards(values: dict[str, Any]) -> dict[str, str]:
    given = of_kind(documents(manifest(values)), "ConfigMap")
    found = [one["data"] for one in given if "grafana_dashboard" in one["metadata"]["labels"]]
    return {name: text for data in found for name, text in data.items()}


def annotations(values: dict[str, Any]) -> list[dict[str, str]]:
    return [
        rule["annotations"]
        for one in of_kind(documents(manifest(values)), "PrometheusRule")
        for group in one["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]


def links(text: str) -> set[str]:
    return set(re.findall(r'"url": "(https?://[^"]+)"', text))


def test_dashboards_are_for_the_sidecar() -> None:
    sources = sorted((CHART / "files" / "dashboards").glob("*.json"))
    given = boards(ON_HOST)
    assert sorted(given) == [path.name for path in sources]
    for path in sources:
        assert json.loads(given[path.name]) == json.loads(path.read_text("utf-8"))


def test_the_runbooks_are_where_they_are_served() -> None:
    base = "https://git.example.org/wirewatch/blob/main/"
    values = {**LINKED, "prometheusRule": {"enabled": True, "runbookBase": base}}
    every = annotations(values)
    assert every
    assert [one for one in every if "runbook_command" in one] == []
    urls = [one["runbook_url"] for one in every]
    assert [url for url in urls if not re.fullmatch(rf"{base}docs/runbook\.md#\w+", url)] == []
    shown = set().union(*map(links, boards(values).values()))
    assert shown == {f"{base}docs/runbook.md#:~:text=${{__value.raw}}"}


def test_no_dashboard_leads_to_pods_that_cannot_be_reached() -> None:
    made = boards(LINKED)
    assert {name: links(text) for name, text in made.items()} == {name: set() for name in made}
    for name, text in made.items():
        source = json.loads((CHART / "files" / "dashboards" / name).read_text("utf-8"))
        assert len(json.loads(text)["panels"]) == len(source["panels"])


@pytest.mark.parametrize(
    ("values", "page"),
    [
        ({}, "http://localhost:9410/"),
        ({"listen": {"port": 9999}}, "http://localhost:9999/"),
        ({"web": {"secret": "x", "tls": True}}, "https://localhost:9410/"),
    ],
    ids=str,
)
def test_every_alert_has_links_where_no_address_is_given(values: dict[str, Any], page: str) -> None:
    every = annotations({**LINKED, **values})
    assert len(every) == len(alerts())
    port = page.rstrip("/").rpartition(":")[2]
    for one in every:
        assert set(one) == {"summary", "description", "runbook_url", "runbook_command", "dashboard_url"}
        assert re.fullmatch(rf"{page}docs/runbook\.md#\w+", one["runbook_url"])
        assert one["runbook_command"] == f"kubectl -n wirewatch port-forward daemonset/wirewatch {port}"
        assert one["dashboard_url"] in {NODE_DASHBOARD, FLEET_DASHBOARD}
    assert "runbook_url of alerts leads to localhost" in rendered({**LINKED, **values})[NOTES]


@pytest.mark.parametrize(
    ("values", "page"),
    [
        ({"hostNetwork": True}, "http://NODE:9410/"),
        ({"hostNetwork": True, "listen": {"port": 9999}}, "http://NODE:9999/"),
        ({"listen": {"hostPort": 19410}}, "http://NODE:19410/"),
        ({"hostNetwork": True, "web": {"secret": "x", "tls": True}}, "https://NODE:9410/"),
        ({"links": {"statusPage": "https://gpus.example.org/at/NODE/"}}, "https://gpus.example.org/at/NODE/"),
    ],
    ids=str,
)
def test_links_lead_to_agents_where_these_are_reached(values: dict[str, Any], page: str) -> None:
    node = '{{ . | first | label "node" }}'
    for one in annotations({**LINKED, **values}):
        assert f"}}}}{page.replace('NODE', node)}{{{{ end }}}}docs/runbook.md#" in one["runbook_url"]
        assert one["dashboard_url"] in {NODE_DASHBOARD, FLEET_DASHBOARD}
        assert "runbook_command" not in one
    assert "runbook_url" not in rendered({**LINKED, **values})[NOTES]
    shown = set().union(*map(links, boards({**LINKED, **values}).values()))
    wanted = {page.replace("NODE", f"${{{name}}}") for name in ("node", "agent", "__data.fields.node")}
    assert {url.partition("docs/")[0] for url in shown} == wanted


def test_alerts_lead_to_their_dashboard_where_grafana_is_known() -> None:
    every = annotations({**LINKED, "links": {"grafana": "https://grafana.example.org/sub"}})
    assert len(every) == len(alerts())
    for one in every:
        assert one["dashboard_url"].startswith(
            "https://grafana.example.org/sub/d/wirewatch-{{ if $labels.node }}"
        )


def runs_on(given: Document, labels: dict[str, str]) -> bool:
    """Whether a node with these labels gets a pod of the DaemonSet, as the scheduler documents it."""
    pod = given["spec"]["template"]["spec"]
    wanted = (
        pod.get("affinity", {})
        .get("nodeAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
    )
    return selects({"matchLabels": pod.get("nodeSelector", {})}, labels) and (
        not wanted or any(selects(term, labels) for term in wanted["nodeSelectorTerms"])
    )


NODES = [
    dict(labels)
    for labels in product(
        (("gpu", "h100"), ("gpu", "l40s"), ("gpu", "b200"), ("gpu", "")),
        (("zone", "a"), ("zone", "b"), ("zone", "")),
        (("nvidia.com/gpu.present", "true"), ("nvidia.com/gpu.present", "")),
    )
]


@pytest.mark.parametrize("name", [name for name in MATRIX if "pool" in name])
def test_no_node_runs_two_agents_and_none_is_left_out_by_a_pool(name: str) -> None:
    values = MATRIX[name]
    with_pools = of_kind(documents(manifest(values)), "DaemonSet")
    (without,) = of_kind(documents(manifest(values | {"pools": []})), "DaemonSet")
    assert len(with_pools) == len(values["pools"]) + 1
    for given in NODES:
        labels = {key: value for key, value in given.items() if value}
        here = [one["metadata"]["name"] for one in with_pools if runs_on(one, labels)]
        assert len(here) <= 1, labels
        mine = [
            f"wirewatch-{pool['name']}"
            for pool in values["pools"]
            if pool["nodeSelector"].items() <= labels.items()
            and (pool.get("affinity") == {} or runs_on(without, labels))
        ]
        assert here == (mine or ["wirewatch"] * runs_on(without, labels)), labels


def test_a_pool_has_its_own_values_and_all_others() -> None:
    rest, first, second = by_pool(documents(manifest(MATRIX["pools"])))
    assert '"gpus" = 8\n' in configuration(rest)
    assert "nvlink_links" not in configuration(rest)
    assert '"gpus" = 8\n"nvlink_links" = 18' in configuration(first)
    assert '"gpus" = 4\n' in configuration(second)
    assert [one["name"] for one in pod_of(first)["containers"]] == ["agent", "prober"]
    assert [(one["name"], one["image"]) for one in pod_of(second)["containers"]] == [
        ("agent", "wirewatch:0.2.0-rc.1")
    ]
    assert pod_of(first)["volumes"][0]["configMap"]["name"] == "wirewatch-h100"
    selectors = [the(one, "DaemonSet")["spec"]["selector"] for one in (rest, first, second)]
    for one, other in permutations((rest, first, second), 2):
        labels = the(other, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
        assert not selects(the(one, "DaemonSet")["spec"]["selector"], labels)
    assert selectors[0] == the(documents(manifest({})), "DaemonSet")["spec"]["selector"]


def test_what_is_given_is_in_the_pod_and_the_charts_own_part_is_as_it_was() -> None:
    values = MATRIX["more of everything"]
    given, bare = documents(manifest(values)), documents(manifest({}))
    pod = pod_of(given)
    for kind in ("sidecars", "initContainers", "extraVolumes"):
        where = {"sidecars": "containers", "extraVolumes": "volumes"}.get(kind, kind)
        assert pod[where][-len(values[kind]) :] == values[kind]
    for name in ("agent", "prober"):
        one, before = container(pod, name), container(pod_of(bare), name)
        assert one["env"] == before["env"] + values[name]["extraEnv"]
        assert one["volumeMounts"] == before["volumeMounts"] + values[name]["extraVolumeMounts"]
    left = pod_of(ours(given))
    for name in ("agent", "prober"):
        container(left, name)["env"] = container(pod_of(bare), name)["env"]
    assert left == pod_of(bare)
    for one in given:
        assert one["metadata"]["labels"]["team"] == "gpu"
    boards = [one for one in of_kind(given, "ConfigMap") if "wirewatch.toml" not in one["data"]]
    assert {(one["metadata"]["namespace"], one["metadata"]["labels"]["release"]) for one in boards} == {
        ("monitoring", "grafana")
    }


def test_an_empty_affinity_is_none_and_one_that_is_left_out_is_of_nodes_with_gpus() -> None:
    def of(values: dict[str, Any]) -> Any:
        return pod_of(documents(manifest(values))).get("affinity")

    assert of({"affinity": {}}) is None
    assert of({"affinity": None}) is None
    assert of({})["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    preferred: dict[str, Any] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    assert of({"affinity": preferred}) == preferred


def test_the_registry_goes_before_the_name_and_labels_of_pods_before_those_of_all() -> None:
    given = documents(manifest(MATRIX["registry without a network"]))
    assert {one["image"] for one in containers(pod_of(given))} == {
        "registry.example.org:5000/mirror/wirewatch:0.1.0"
    }
    assert the(given, "DaemonSet")["metadata"]["labels"]["team"] == "gpu"
    assert the(given, "DaemonSet")["spec"]["template"]["metadata"]["labels"]["team"] == "sre"


def rules_of(given: Sequence[Document], kind: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Rules by name and severity."""
    return {
        (rule[kind], rule.get("labels", {}).get("severity", "")): rule
        for one in of_kind(given, "PrometheusRule")
        for group in one["spec"]["groups"]
        for rule in group["rules"]
        if kind in rule
    }


def test_single_alerts_are_off_or_have_another_threshold_and_all_others_are_as_they_were() -> None:
    before = documents(manifest(MATRIX["monitored"]))
    after = documents(manifest(MATRIX["alerts of one's own"]))
    old, new = rules_of(before, "alert"), rules_of(after, "alert")
    off = {("WirewatchMinorityVersion", "ticket"), ("WirewatchPortDown", "ticket")}
    assert set(old) - set(new) == off
    changed = {name for name, rule in new.items() if rule != old[name]}
    port, slow, stale = (
        ("WirewatchPortDown", "critical"),
        ("WirewatchBusbwBelowBaseline", "ticket"),
        ("WirewatchProbeStale", "ticket"),
    )
    assert changed == {port, slow, stale}
    assert (new[port]["for"], new[port]["labels"]) == ("5m", {"severity": "critical", "team": "net"})
    assert new[slow]["expr"] == old[slow]["expr"].replace("< 0.9 ", "< 0.8 ")
    assert new[stale]["expr"] == old[stale]["expr"].replace("> 1209600 ", "> 604800 ")
    (rule,) = (rule for name, rule in rules_of(after, "record").items() if name[0].endswith("gpu_node:known"))
    assert 'last_over_time(kube_node_labels{label_pool="gpu"}[10m])' in rule["expr"]
    assert set(rules_of(before, "record")) == set(rules_of(after, "record"))


def test_promtool_takes_the_rules_with_other_thresholds(tmp_path: Path) -> None:
    everything = {name: {"threshold": 0.125} for name in thresholds()}
    assert len(everything) > 3
    values = {"prometheusRule": {"enabled": True, "alerts": everything}}
    for one in of_kind(documents(manifest(values)), "PrometheusRule"):
        path = tmp_path / f"{one['metadata']['name']}.yml"
        path.write_text(yaml.safe_dump(one["spec"]), "utf-8")
        done = subprocess.run(
            ["promtool", "check", "rules", path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said = done.stdout
    assert f"SUCCESS: {len(alerts())} rules found" in said
    for name in everything:
        made = [one["expr"] for one in of_alerts(values) if one["alert"] == name]
        marked = [expr for expr in made if "# threshold:" in expr]
        assert marked
        assert all("0.125  # threshold:" in expr for expr in marked)


def of_alerts(values: dict[str, Any]) -> list[dict[str, Any]]:
    return list(rules_of(documents(manifest(values)), "alert").values())


def test_yaml_of_the_sets_is_what_helm_is_given() -> None:
    """The library takes objects: what `-f` would read is the same."""
    for path in sorted((CHART.parents[1] / "deploy" / "kubernetes" / "values").glob("*.yaml")):
        assert helm_python.values_from_yaml(path.read_text("utf-8")) == yaml.safe_load(
            path.read_text("utf-8")
        )
