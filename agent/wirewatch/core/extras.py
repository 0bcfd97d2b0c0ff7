"""How to install the requirements of an optional part of wirewatch. No package index has wirewatch itself."""

import shlex
from collections.abc import Mapping, Sequence

EXTRAS: Mapping[str, Sequence[str]] = {
    "controller": ("aiohttp>=3.14", "kubernetes-asyncio>=33.3"),
    "kubernetes": ("grpcio>=1.76", "protobuf>=6.33.5"),
    "nccl": (
        "nccl4py>=0.6", "cuda-core>=1.0", "cuda-bindings>=13,<14", "nvidia-cuda-nvrtc>=13,<14",
        "nvidia-nccl-cu13>=2.28.9,<=2.32.3",
    ),
    "report": ("matplotlib>=3.10",),
    "top": ("textual>=8.0",),
    "torch": ("torch>=2.10", "numpy>=2.0"),
}  # fmt: skip
"""Requirements of the extras that a hint names, as pyproject.toml has them."""


def install(extra: str) -> str:
    """Return the command that installs the requirements of an extra."""
    return f"pip install {shlex.join(EXTRAS[extra])}"
