"""NCCL Inspector's files: lines, folders and what is judged of them."""
