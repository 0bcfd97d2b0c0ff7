"""NVML behind a process boundary: the library may hang or crash, the agent may not."""
