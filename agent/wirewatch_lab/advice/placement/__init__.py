"""Which GPUs of which nodes the groups of a job take."""
