"""Recommended NCCL settings of a job, and faults in its present settings."""
