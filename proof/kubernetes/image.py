"""The product's image with a recording in the place of the driver, and that of a pod's first container."""

from pathlib import Path

from proof.containers import run, store
from proof.image.builder import BASE, PLACE, build, name, prepare

TARGET = "agent"
REPOSITORY, TAG = "localhost/wirewatch", "e2e"
PAUSE = "localhost/wirewatch-pause:e2e"
OVERLAY = "WIREWATCH_E2E_OVERLAY"
"""The environment variable that names what is wrong with the recorded node; empty for nothing."""
RECORDING = "demo-dgx-h200"
_TOML, _SOCKET = "/etc/wirewatch/wirewatch.toml", "/run/wirewatch/wirewatch.sock"
_ENTRY = f"""\
#!/bin/sh
# There is no GPU: agent and prober play a recording. It has no local socket unless the configuration names
# one, since nothing shall start a job by a demo's verdict. Nothing else that the chart sets changes.
set -eu
case "$1" in
serve | prober) set -- "$@" --replay {RECORDING} --loop ${{{OVERLAY}:+--overlay "${OVERLAY}"}} ;;
esac
if [ "$1" = serve ]; then
    sed 's|^."listen".$|&\\nsocket = "{_SOCKET}"|' {_TOML} >/run/wirewatch/e2e.toml
    set -- "$@" --config=/run/wirewatch/e2e.toml
fi
exec wirewatch "$@"
"""


def archives(folder: Path) -> tuple[Path, ...]:
    """Built and written to files."""
    folder.mkdir(parents=True, exist_ok=True)
    prepare()
    build(TARGET)
    entry = folder / "wirewatch"
    entry.write_text(_ENTRY, "utf-8")
    entry.chmod(0o755)
    _derive(name(TARGET), f"{REPOSITORY}:{TAG}", '["/e2e/wirewatch"]', entry)
    _derive(BASE, PAUSE, '["/bin/sleep", "infinity"]')
    return tuple(
        _archive(image, folder / f"{number}.tar")
        for number, image in enumerate((f"{REPOSITORY}:{TAG}", PAUSE))
    )


def _derive(source: str, image: str, entry: str, *files: Path) -> None:
    container = run("buildah", *store(PLACE), "from", "--pull-never", source).strip()
    try:
        for file in files:
            run("buildah", *store(PLACE), "add", "--quiet", container, str(file), f"/e2e/{file.name}")
        run("buildah", *store(PLACE), "config", "--entrypoint", entry, "--cmd", "", container)
        run("buildah", *store(PLACE), "commit", "--quiet", container, image)
    finally:
        run("buildah", *store(PLACE), "rm", container)


def _archive(image: str, file: Path) -> Path:
    file.unlink(missing_ok=True)
    run("buildah", *store(PLACE), "push", "--quiet", image, f"docker-archive:{file}:{image}")
    return file
