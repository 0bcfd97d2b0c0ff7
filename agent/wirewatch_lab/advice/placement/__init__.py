"""GPUs and nodes for the groups of a job."""
