"""RDMA ports and processors for each GPU."""
