"""The tap: where it is installed, and the rings that it writes in running jobs."""
