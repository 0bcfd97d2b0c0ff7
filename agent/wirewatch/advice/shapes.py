"""Transformers by their published shapes: parameters, memory, and what parallelism has to send."""

from collections.abc import Mapping
from dataclasses import dataclass

TRAINING_BYTES = 16
"""Bytes a parameter with Adam in mixed precision: weights and gradients in 16 bits, master weights and two
moments in 32."""
WIDTHS: Mapping[str, float] = {
    "float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "int8": 1, "int4": 0.5,
}  # fmt: skip
"""Bytes of a value."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder of equal layers.

    `heads`: of attention; `kv_heads`: of keys and values. `feed_forward`: width between the matrices of the
    feed-forward network, or of each expert. `experts`: in each layer, 0 for a dense model, of which a token
    takes `active`. `parameters`: in all, as published.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    parameters: float
    source: str
    experts: int = 0
    active: int = 0


_CONFIG = "config.json of {} on Hugging Face"
SHAPES: tuple[ModelShape, ...] = (
    ModelShape(
        "llama-3-8b", 32, 4096, 32, 8, 14336, 128256, 8.03e9, _CONFIG.format("meta-llama/Meta-Llama-3-8B")
    ),
    ModelShape(
        "llama-3-70b", 80, 8192, 64, 8, 28672, 128256, 70.55e9, _CONFIG.format("meta-llama/Meta-Llama-3-70B")
    ),
    ModelShape(
        "llama-3.1-405b", 126, 16384, 128, 8, 53248, 128256, 405.85e9,
        _CONFIG.format("meta-llama/Llama-3.1-405B"),
    ),
    ModelShape(
        "mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 46.70e9, _CONFIG.format("mistralai/Mixtral-8x7B-v0.1"),
        experts=8, active=2,
    ),
)  # fmt: skip
