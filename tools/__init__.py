"""Generators: what of the project's files is made from its code."""
