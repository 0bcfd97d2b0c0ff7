"""Which engine is found, in a Python with packages of our own making and no others."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.node.probe.rig import ROOT
from tests.patience import HANGS

ASK = """
import sys
sys.path[:0] = sys.argv[2:]
from wirewatch.probe.setup import find_engine
print(find_engine(sys.argv[1]))
print("torch" in sys.modules)
"""
NCCL = {"nccl/__init__.py": "", "nccl/bindings/__init__.py": "", "cuda/core.py": "", "cuda/bindings.py": ""}
PARTS = ("nccl/bindings/__init__.py", "cuda/core.py", "cuda/bindings.py")
TORCH = {"torch/__init__.py": "raise OSError('imported')", "torch/lib/libtorch_cuda.so": ""}
CPU_TORCH = {"torch/__init__.py": "raise OSError('imported')"}
NONE = "missing: no engine: "
BOTH = f"{NONE}nccl4py and cuda-core (pip install 'wirewatch[nccl]') nor torch with CUDA is installed"


def found(folder: Path, files: Mapping[str, str], wanted: str = "auto") -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    done = subprocess.run(
        # Without the site's packages, among which the engines may really be.
        [sys.executable, "-I", "-S", "-c", ASK, wanted, str(folder), str(ROOT / "agent")],
        capture_output=True, text=True, check=True, timeout=HANGS,
    )  # fmt: skip
    engine, imported = done.stdout.splitlines()
    assert imported == "False"
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
        ({}, "gloo", f"{NONE}torch and numpy (pip install 'wirewatch[torch]') is installed"),
        *[({n: t for n, t in NCCL.items() if n != part}, "auto", BOTH) for part in PARTS],
        ({**NCCL, "nccl/__init__.py": "raise RuntimeError('broken')"}, "auto", BOTH),
        ({**NCCL, "nccl/__init__.py": "import no_such_library"}, "nccl", f"{NONE}nccl4py and cuda-core"),
        ({**NCCL, **TORCH, "nccl/__init__.py": "raise OSError('libnccl.so.2')"}, "auto", "torch"),
    ],
)
def test_the_engine_is_what_is_installed(
    tmp_path: Path, files: Mapping[str, str], wanted: str, engine: str
) -> None:
    assert found(tmp_path, files, wanted).startswith(engine)
