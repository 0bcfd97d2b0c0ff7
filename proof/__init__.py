"""Proof beyond unit tests: on GPUs, on clusters, in containers, by rehearsal, simulation and benchmark."""
