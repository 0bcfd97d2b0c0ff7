"""The probe's own process: the engines that run collectives and copies on the GPUs."""
