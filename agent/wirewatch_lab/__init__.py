"""The lab: sweeps, comparisons, reading what other programs measured, and advice. It runs on a laptop too."""
