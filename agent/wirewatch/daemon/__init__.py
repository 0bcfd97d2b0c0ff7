"""The daemon: lanes, schedule, the published state."""
