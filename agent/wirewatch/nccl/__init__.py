"""NCCL's log, its settings and their meaning: text in, values out."""
