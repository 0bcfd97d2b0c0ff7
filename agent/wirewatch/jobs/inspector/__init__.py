"""The files that NCCL Inspector writes in running jobs, read where the tap cannot be loaded beside it."""
