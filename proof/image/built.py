"""What the image is made of, before it runs: each step asserts, and returns one line of what was seen."""

import platform
import re
import shutil

from proof.containers import attempt, podman, run
from proof.image.builder import PLACE, build, configured, layers, name, try_build
from proof.image.running import HARD
from tools.locks import PLACE as LOCKS
from tools.locks import wanted

AGENT_MOST = 90e6
"""Bytes of the layers that are the agent's: all but base, engine and the controller's packages."""
MB = 1e6
OWN = "65532"
LABELS = ("title", "description", "version", "revision", "licenses", "base.name")
TAP = """
import shutil
from wirewatch.jobs.tap.tapfile import LIBRARY, PLACES, described
assert shutil.which("cc") is None
print(described(PLACES[0] / LIBRARY), LIBRARY)
"""
ENGINE = """
import sys
from wirewatch.worker import kernels
from cuda.core import Program, ProgramOptions
from nccl.bindings import nccl
assert "torch" not in sys.modules
for arch in ("sm_80", "sm_90", "sm_100"):
    code = Program(kernels.source("float32"), "c++", ProgramOptions(arch=arch)).compile("cubin").code
    assert code[:4] == b"\\x7fELF", code[:4]
print(nccl.get_version())
"""
"""All of the engine that needs no GPU: NCCL loads, and our kernels compile for three kinds of GPU."""


def sizes() -> str:
    """Builds the default target."""
    build("nccl")
    added = layers("nccl")
    copied = [layer.size_bytes for layer in reversed(added) if "COPY" in layer.made_by]
    folders, controller, needs, app, engine = copied
    base = sum(layer.size_bytes for layer in added) - sum(copied)
    parts = {
        "base": base, "packages": needs, "wirewatch": folders + app, "controller": controller,
        "engine": engine,
    }  # fmt: skip
    assert all(parts.values()), parts
    agent = parts["packages"] + parts["wirewatch"]
    assert agent <= AGENT_MOST, parts
    told = ", ".join(f"{part} {size / MB:.1f}" for part, size in parts.items())
    part = f"the agent's part (packages, wirewatch) {agent / MB:.1f} of 90 at most"
    return f"layers, MB uncompressed: {told}; {part}"


def described() -> str:
    told = configured("nccl")["Config"]
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in told["Labels"].items()}
    assert (told["User"], told["Entrypoint"], told["Cmd"]) == (f"{OWN}:{OWN}", ["wirewatch"], ["serve"])
    assert all(labels[one] for one in LABELS), labels
    assert once("nccl", "--version").split()[-1] == labels["version"]
    return f"user {told['User']}, entry point {told['Entrypoint'][0]}, OCI labels {', '.join(LABELS)}"


def locked() -> str:
    """A package that is not the one of the lock is refused."""
    text = (LOCKS / "nccl.txt").read_text("utf-8")
    block = re.search(r"^packaging==.*?(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    assert block
    wrong = re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", block[0])
    lock = PLACE / "context" / "deploy/image/nccl.txt"
    lock.write_text(text.replace(block[0], wrong), "utf-8")
    try:
        done = try_build("nccl", tag=name("wrong"))
    finally:
        shutil.copy2(LOCKS / "nccl.txt", lock)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stdout + done.stderr, done.stderr[-2000:]
    return "a package whose hash is not that of the lock ends the build"


def loads() -> str:
    """The engine, as far as a machine without GPU can show."""
    number = int(once("nccl", "-c", ENGINE, entry="python3"))
    told = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    assert f"nvidia-nccl-cu13=={told}" in (LOCKS / "nccl.txt").read_text("utf-8")
    return f"without a GPU: NCCL {told} loads, the kernels compile for sm_80, sm_90 and sm_100, no torch"


def carries_the_tap() -> str:
    """What jobs load is in the image, with no compiler beside it."""
    machine, name = once("nccl", "-c", TAP, entry="python3").split()
    assert machine == platform.machine()
    return f"{name} for {machine} is in the image, and no compiler is"


def other_platform() -> str:
    """Whether the locks hold for arm64; its image is not built here, where no such processor is."""
    counted = []
    for lock in wanted():
        done = attempt(
            "uv", "pip", "install", "--dry-run", "--no-config", "--require-hashes", "--only-binary", ":all:",
            "--python-platform", "aarch64-manylinux_2_28", "--python-version", "3.12", "--target",
            str(PLACE / "nothing"), "--requirement", str(LOCKS / f"{lock}.txt"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = len(re.findall(r"^ \+ \S+==\S+$", done.stderr, re.MULTILINE))
        assert found > 1, done.stderr
        counted.append(f"{lock} {found}")
    return f"for arm64 all distributions are there with their hashes ({', '.join(counted)}); not built there"


def once(target: str, *words: str, entry: str = "wirewatch") -> str:
    """Standard output of a container that ends by itself."""
    command = ("run", "--rm", *HARD, "--network", "none", "--entrypoint", entry, name(target), *words)
    return run(*podman(PLACE), *command)
