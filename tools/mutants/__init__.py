"""Mutants: faults that would hurt a user, put into a copy of the tree one at a time; a test must fail."""
