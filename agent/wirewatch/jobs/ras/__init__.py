"""RAS, which NCCL answers itself: asking a job that seems to hang, and reading the answer."""
