"""A process of its own for collectors whose readings users write, with limits of memory and of CPU time."""
