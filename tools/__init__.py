"""Generators of files that are made from the code, and measures of it."""
