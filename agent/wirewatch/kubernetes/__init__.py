"""The node condition `InterconnectHealthy`: what Kubernetes hears of this node from its own agent."""
