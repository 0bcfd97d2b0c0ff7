"""Transformers by their published shapes: parameters, memory, and the traffic of parallelism."""

from collections.abc import Mapping
from dataclasses import dataclass

TRAINING_BYTES = 16
"""Bytes of a parameter with Adam in mixed precision: weights and gradients in 16 bits, master weights and two
moments in 32."""
WIDTHS: Mapping[str, float] = {
    "float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "int8": 1, "int4": 0.5,
}  # fmt: skip
"""Bytes of a weight."""
NARROWEST = 2
"""Least bytes of an activation, key or value. Engines add up partial sums in 16 bits, and keep keys and
values so, unless the cache is quantised too."""
TRAINED = ("float32", "bfloat16", "float16", "fp8")
"""Number formats of gradients."""
OPTIONS = "the options"
"""Source of a shape from options, not from a page."""
HEAD = 128
"""Width of an attention head where only the hidden size is known, as in all of `SHAPES`."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder of equal layers with gated feed-forward networks and an output matrix of its own.

    `heads`: of attention; `kv_heads`: of keys and values. `feed_forward`: width between the matrices of the
    feed-forward network, or of each expert. `experts`: in each layer, 0 for a dense model, of which a token
    takes `active`. `parameters`: in all, as published. `head`: width of a head, `hidden / heads` where it is
    0. `more`: parameters of a layer beside its matrices and its two norms, such as biases.
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
    head: int = 0
    more: int = 0

    @property
    def head_width(self) -> int:
        """Return the width of an attention head."""
        return self.head or self.hidden // self.heads

    @property
    def expert(self) -> int:
        """Return parameters of a feed-forward network: three matrices, gate, up and down."""
        return 3 * self.hidden * self.feed_forward

    def counted(self) -> int:
        """Return parameters that follow from the shape: matrices, norms, embeddings and the output matrix."""
        attention = 2 * self.hidden * self.head_width * (self.heads + self.kv_heads)
        router = self.hidden * self.experts
        layer = attention + router + self.expert * max(1, self.experts) + 2 * self.hidden + self.more
        return self.layers * layer + 2 * self.vocabulary * self.hidden + self.hidden

    def read(self, tokens: float) -> float:
        """Return parameters that a forward pass over so many tokens reads, by expectation over equal experts.

        A pass looks up the input embedding without reading it, and reads only the experts that a token takes.
        """
        rest = self.parameters - self.vocabulary * self.hidden
        if not self.experts:
            return rest
        missed: float = self.experts * (1 - self.active / self.experts) ** tokens
        return rest - self.layers * missed * self.expert

    def worked(self) -> float:
        """Return parameters that multiply a token: all except the embedding and the unused experts."""
        return self.read(1)

    def cached(self, width: float) -> float:
        """Return bytes of a token's keys and values, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_width * width

    def message(self, tokens: float, width: float) -> float:
        """Return bytes of a tensor-parallel all-reduce: the hidden state of so many tokens."""
        return tokens * self.hidden * width


REDUCTIONS = 2
"""All-reduces of a layer in a tensor-parallel forward pass: after attention, and after the feed-forward
network (Megatron-LM, arXiv:1909.08053, section 3)."""
_CONFIG = "config.json of {} on Hugging Face"


def _llama(
    name: str, of: str, layers: int, hidden: int, heads: int, kv_heads: int, feed_forward: int,
    vocabulary: int, parameters: float,
) -> ModelShape:  # fmt: skip
    return ModelShape(
        name, layers, hidden, heads, kv_heads, feed_forward, vocabulary, parameters, _CONFIG.format(of)
    )


SHAPES: tuple[ModelShape, ...] = (
    _llama("llama-2-7b", "meta-llama/Llama-2-7b-hf", 32, 4096, 32, 32, 11008, 32000, 6_738_415_616),
    _llama("mistral-7b", "mistralai/Mistral-7B-v0.1", 32, 4096, 32, 8, 14336, 32000, 7_241_732_096),
    _llama("llama-3-8b", "meta-llama/Meta-Llama-3-8B", 32, 4096, 32, 8, 14336, 128256, 8_030_261_248),
    _llama("llama-3-70b", "meta-llama/Meta-Llama-3-70B", 80, 8192, 64, 8, 28672, 128256, 70_553_706_496),
    ModelShape(
        "qwen2.5-72b", 80, 8192, 64, 8, 29568, 152064, 72_706_203_648, _CONFIG.format("Qwen/Qwen2.5-72B"),
        more=(64 + 2 * 8) * 128,
    ),
    _llama(
        "llama-3.1-405b", "meta-llama/Llama-3.1-405B", 126, 16384, 128, 8, 53248, 128256, 405_853_388_800
    ),
    ModelShape(
        "mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 46_702_792_704,
        _CONFIG.format("mistralai/Mixtral-8x7B-v0.1"), experts=8, active=2,
    ),
    ModelShape(
        "mixtral-8x22b", 56, 6144, 48, 8, 16384, 32768, 140_630_071_296,
        _CONFIG.format("mistralai/Mixtral-8x22B-Instruct-v0.1"), experts=8, active=2,
    ),
    ModelShape(
        "qwen3-235b-a22b", 94, 4096, 64, 4, 1536, 151936, 235_093_634_560,
        _CONFIG.format("Qwen/Qwen3-235B-A22B"), experts=128, active=8, head=128, more=2 * 128,
    ),
)  # fmt: skip
"""Counts are from the published weights, and `ModelShape.counted` gives each count exactly."""


def plain_shape(
    layers: int, hidden: int, parameters: float, kv_heads: int | None, experts: int, active: int
) -> ModelShape:
    """Return a model from a few known numbers.

    Without layers or a hidden size, only its parameters are known. Heads are 128 wide, each with its own keys
    and values unless `kv_heads` says otherwise. The feed-forward network gets the parameters that attention
    leaves.
    """
    if not layers or not hidden:
        return ModelShape("as given", 0, 0, 1, 1, 0, 0, parameters, OPTIONS)
    heads = max(1, hidden // HEAD)
    kept = kv_heads or heads
    attention = 2 * hidden * HEAD * (heads + kept)
    left = max(0.0, parameters / layers - attention)
    feed_forward = round(left / max(1, experts) / (3 * hidden))
    return ModelShape(
        "as given", layers, hidden, heads, kept, feed_forward, 0, parameters, OPTIONS,
        experts, active, head=HEAD,
    )  # fmt: skip
