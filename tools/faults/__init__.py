"""docs/faults.md: every known fault, played on a clock that jumps: `make faults`."""
