"""Which engine is found, in a Python with packages of our own making and no others."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from wirewatch.core.extras import install
from wirewatch.probe.setup import find_engine

ROOTS = ("nccl", "cuda", "torch")
NCCL = {"nccl/__init__.py": "", "nccl/bindings/__init__.py": "", "cuda/core.py": "", "cuda/bindings.py": ""}
PARTS = ("nccl/bindings/__init__.py", "cuda/core.py", "cuda/bindings.py")
TORCH = {"torch/__init__.py": "raise OSError('imported')", "torch/lib/libtorch_cuda.so": ""}
CPU_TORCH = {"torch/__init__.py": "raise OSError('imported')"}
NONE = "missing: no engine: "
BOTH = f"{NONE}nccl4py and cuda-core ({install('nccl')}) nor torch with CUDA is installed"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder of packages: among those of the site the engines may really be."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] not in ROOTS}
    own = dict(sys.modules)
    for name in own.keys() - kept.keys():
        del sys.modules[name]
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ROOTS]:
        del sys.modules[name]
    sys.modules.update(own)


def found(folder: Path, files: Mapping[str, str], wanted: str = "auto") -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    importlib.invalidate_caches()
    engine = str(find_engine(wanted))
    assert "torch" not in sys.modules
    return engine


@pytest.mark.parametrize(
    ("files", "wanted", "engine"),
    [
        ({}, "auto", BOTH),
        (NCCL, "auto", "nccl"),
        (NCCL, "torch", f"{NONE}torch with CUDA is installed"),
        (TORCH, "auto", "torch"),
        ({**NCCL, **TORCH}, "auto", "nccl"),
        ({**NCCL, **TORCH}, "torch", "torch"),
        (CPU_TORCH, "auto", BOTH),
        (CPU_TORCH, "gloo", "gloo"),
        ({"torch.py": "raise OSError('imported')"}, "torch", f"{NONE}torch with CUDA is installed"),
        ({}, "gloo", f"{NONE}torch and numpy ({install('torch')}) is installed"),
        *[({n: t for n, t in NCCL.items() if n != part}, "auto", BOTH) for part in PARTS],
        ({**NCCL, "nccl/__init__.py": "raise RuntimeError('broken')"}, "auto", BOTH),
        ({**NCCL, "nccl/__init__.py": "import no_such_library"}, "nccl", f"{NONE}nccl4py and cuda-core"),
        ({**NCCL, **TORCH, "nccl/__init__.py": "raise OSError('libnccl.so.2')"}, "auto", "torch"),
    ],
)
def test_the_engine_is_what_is_installed(
    packages: Path, files: Mapping[str, str], wanted: str, engine: str
) -> None:
    assert found(packages, files, wanted).startswith(engine)
