"""The node condition `InterconnectHealthy`: what Kubernetes is told of this node, by this node's agent."""
