"""Bus bandwidth: formulas, the wire under a group of GPUs, what to expect of it, published references."""
