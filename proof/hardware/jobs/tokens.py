"""Shapes of the toy transformer, which its job and its judge share."""

LAYERS = 8
REDUCTIONS = 2 * LAYERS
"""All-reduces of one pass: after attention and after feed-forward of each layer."""
SHAPES = ((4096, 1), (8192, 1), (8192, 16), (8192, 128), (8192, 1024))
"""Hidden size and tokens: messages of 8 and 16 KiB, 256 KiB, 2 and 16 MiB in bfloat16."""
