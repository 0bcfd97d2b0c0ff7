"""The brake of Slurm's scripts in a cluster of a thousand nodes."""
