"""Which NCCL settings a job should have, and what is wrong with those it has."""
