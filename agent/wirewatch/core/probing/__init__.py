"""The probe as values: plan, result document, bus bandwidth, what it should be, NCCL's own account."""
