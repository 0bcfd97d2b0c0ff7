"""Changes on a node since its topology was accepted: pure functions over graphs."""
