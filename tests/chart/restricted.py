"""The Pod Security level `restricted`, as far as a pod of ours has what it speaks of.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/.
"""

from collections.abc import Iterator

from tests.chart.documents import Document, containers

USER = ("runAsNonRoot", "runAsUser")
VOLUMES = {"configMap", "downwardAPI", "emptyDir", "projected", "secret"}


def refused(pod: Document) -> Iterator[str]:
    """Why a namespace of that level would not take a pod."""
    for key in ("hostPID", "hostIPC", "hostNetwork"):
        if pod.get(key):
            yield key
    for volume in pod["volumes"]:
        yield from (f"volume {kind}" for kind in set(volume) - {"name"} - VOLUMES)
    if pod["securityContext"].get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "seccomp"
    for one in containers(pod):
        # Who it runs as may be said of the whole pod.
        whole = {key: pod["securityContext"][key] for key in USER if key in pod["securityContext"]}
        context = {**whole, **one["securityContext"]}
        if not context.get("runAsNonRoot") or context.get("runAsUser") == 0:
            yield f"{one['name']}: root"
        if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
            yield f"{one['name']}: privileges"
        capabilities = context.get("capabilities", {})
        if "ALL" not in capabilities.get("drop", ()) or capabilities.get("add"):
            yield f"{one['name']}: capabilities"
