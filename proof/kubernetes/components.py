"""The programs of a control plane and a kubelet, built from Debian's source package and kept between runs."""

import os
import shutil
import tempfile
from pathlib import Path

from proof.containers import BUILD, mirror, run

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
SUITE = "bookworm"
_GO = Path("/usr/lib/go-1.19/bin")
_REFLECT = Path("/usr/share/gocode/src/github.com/modern-go/reflect2")
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def cache() -> Path:
    """Where the built programs are kept: $XDG_CACHE_HOME if set, else below build/."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) / "wirewatch" if home else BUILD) / "e2e-kubernetes" / "bin"


def programs() -> Path:
    """The folder with the programs; built if one is not there, which takes some minutes."""
    folder = cache()
    if all((folder / name).exists() for name in PROGRAMS):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside where they are kept, since the tree needs gigabytes that a /tmp in memory does not have.
    work = Path(tempfile.mkdtemp(prefix="source-", dir=folder.parent))
    try:
        built = _make(_source(work))
        fresh = folder.with_name("bin.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        for name in PROGRAMS:
            shutil.copy2(built / name, fresh / name)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        # Go's cache of modules is read-only.
        run("chmod", "-R", "u+w", str(work))
        shutil.rmtree(work)
    return folder


def _source(work: Path) -> Path:
    """Debian's source package `kubernetes`, upstream's whole tree; apt's own lists stay as they are."""
    (where,) = mirror() or ("http://deb.debian.org/debian",)
    (work / "lists" / "partial").mkdir(parents=True)
    (work / "sources.list").write_text(f"deb-src [signed-by={_KEYS}] {where} {SUITE} main\n", "utf-8")
    options = [
        part
        for name, value in (
            ("APT::Sandbox::User", "root"),
            ("Dir::Etc::sourcelist", f"{work}/sources.list"),
            ("Dir::Etc::sourceparts", "-"),
            ("Dir::State::lists", f"{work}/lists"),
        )
        for part in ("-o", f"{name}={value}")
    ]
    here = ("env", "-C", str(work), "apt-get", "-qq", *options)
    run(*here, "update")
    run(*here, "source", "kubernetes")
    (tree,) = (path for path in work.glob("kubernetes-*") if path.is_dir())
    return tree


def _make(tree: Path) -> Path:
    """The folder with what was built."""
    # The vendored reflect2 1.0.1 does not fit Go from 1.18 on; Debian has 1.0.2.
    vendored = tree / "vendor/github.com/modern-go/reflect2"
    for pattern in ("*.go", "*.s"):
        for old in vendored.glob(pattern):
            old.unlink()
        for new in _REFLECT.glob(pattern):
            shutil.copy2(new, vendored)
    home = tree / ".go"
    (home / "src/k8s.io").mkdir(parents=True)
    (home / "src/k8s.io/kubernetes").symlink_to("../../..")
    (tree / "home").mkdir()
    run(
        "make", "-C", str(tree), "WHAT=" + " ".join(f"cmd/{name}" for name in PROGRAMS), seconds=3600,
        GOPATH=str(home), HOME=str(tree / "home"), PATH=f"{_GO}:{os.environ['PATH']}", CGO_ENABLED="0",
        GOPROXY="off",
    )  # fmt: skip
    return tree / "_output/local/bin/linux/amd64"
