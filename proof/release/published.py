"""Chart and image, as a registry gets them. Each step asserts, and returns one line of what was seen."""

import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import helm_python

from proof.containers import podman, run
from proof.image.builder import PLACE as IMAGES
from proof.image.ran import SERVE, folders
from proof.image.running import Container, get
from proof.rehearsal.services import free_port
from proof.release.place import DIST, PLACE, file, running
from tests.waiting import until
from tools.chart.helm import complaints, manifest
from tools.version import version

REGISTRY = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
KEPT = "/var/lib/wirewatch/latches.json"


def chart() -> str:
    """Pushed by skopeo from its layout into a registry, and pulled from there by Helm's engine."""
    packed, layout = DIST / f"wirewatch-{version()}.tgz", file("-chart.oci.tar")
    assert complaints({}, packed) == []
    assert f"image: wirewatch:{version()}\n" in manifest({}, packed)
    with registry() as host, tempfile.TemporaryDirectory() as folder:
        run(
            "skopeo", "copy", "--quiet", "--dest-tls-verify=false", f"oci-archive:{layout}:{version()}",
            f"docker://{host}/charts/wirewatch:{version()}",
        )  # fmt: skip
        helm_python.pull(
            f"oci://{host}/charts/wirewatch", version=version(), destination=folder, plain_http=True
        )
        (pulled,) = Path(folder).glob("*.tgz")
        assert pulled.read_bytes() == packed.read_bytes()
    return (
        f"lints and renders; skopeo pushed the layout into Debian's docker-registry, Helm's engine "
        f"{helm_python.helm_sdk_version()} pulled the same bytes from there"
    )


def image() -> str:
    """Loaded from its archive, run on a state folder, replaced, removed."""
    archive, name = file("-image.oci.tar"), f"localhost/wirewatch-released:{version()}"
    run(
        "skopeo", "copy", "--quiet", f"oci-archive:{archive}:{version()}",
        f"containers-storage:[overlay@{IMAGES}/store+{IMAGES}/run]{name}",
    )  # fmt: skip
    about = json.loads(run(*podman(IMAGES), "image", "inspect", name))[0]["Config"]
    assert about["Labels"]["org.opencontainers.image.version"] == version()
    with folders(
        '[listen]\nsocket = "/run/wirewatch/wirewatch.sock"\n[state]\ndirectory = "/var/lib/wirewatch"\n'
    ) as mounts:
        for overlay in ("xid-79", ""):
            port = free_port()
            words = (*SERVE, "--listen", f"127.0.0.1:{port}", *(("--overlay", overlay) if overlay else ()))
            with Container(name, mounts, *words) as agent:
                until(agent.log, partial(_finds, port), 90)
                assert agent.attempt("test", "-s", KEPT).returncode == 0
                assert agent.stop()[1] == 0
    run(*podman(IMAGES), "rmi", name)
    return "loaded from the archive by skopeo; a fault that one found is remembered by the next; removed"


def _finds(port: int) -> bool:
    return "xid.79" in get(port, "/health")[1]


@contextmanager
def registry() -> Iterator[str]:
    """Debian's docker-registry, empty, at a port of its own."""
    folder, port = PLACE / "registry", free_port()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config.yml").write_text(REGISTRY.format(folder=folder, port=port), "utf-8")
    with running("docker-registry", "serve", str(folder / "config.yml"), ends=(0, 2, -signal.SIGTERM)):
        until("no registry", lambda: get(port, "/v2/")[0] == 200, 20)
        yield f"127.0.0.1:{port}"
