"""Which RDMA ports and processors each GPU should use."""
