"""Which engine a probe can use here, told by what is installed, without importing the engines themselves."""

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from wirewatch.core.types import Absent, Why

NEEDS = {
    "nccl": "nccl4py and cuda-core (pip install 'wirewatch[nccl]')",
    "torch": "torch with CUDA",
    "gloo": "torch and numpy (pip install 'wirewatch[torch]')",
}
AUTO = ("nccl", "torch")
"""What `auto` tries; gloo measures no GPU."""


def find_engine(wanted: str) -> str | Absent:
    """The engine of this name, or the first that is here for `auto`."""
    names = AUTO if wanted == "auto" else (wanted,)
    for name in names:
        if _is_here(name):
            return name
    return Absent(Why.MISSING, f"no engine: {' nor '.join(NEEDS[name] for name in names)} is installed")


def _is_here(name: str) -> bool:
    if name == "nccl":
        return _found("nccl.bindings") and _found("cuda.core") and _found("cuda.bindings")
    if name == "gloo":
        return _found("torch")
    torch = _spec("torch")
    places = torch.submodule_search_locations if torch else None
    return any(Path(place, "lib", "libtorch_cuda.so").exists() for place in places or ())


def _found(module: str) -> bool:
    return _spec(module) is not None


def _spec(module: str) -> ModuleSpec | None:
    """Packages around a module are imported by this, and one of them may be broken."""
    try:
        return find_spec(module)
    except (ImportError, AttributeError, OSError, RuntimeError, SyntaxError, ValueError):
        return None
