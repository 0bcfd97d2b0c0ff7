"""The daemon: its schedule, the published state, orders, persistence and reports to other programs."""
