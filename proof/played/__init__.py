"""Jobs played without GPUs: processes that load the real tap and call it as NCCL does, in real time.

Nothing here is NCCL and nothing computes: what a GPU's clock would have shown is drawn by the algebra of
collectives. The tap, its rings and all that reads them are real.
"""
