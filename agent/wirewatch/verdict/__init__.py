"""From the findings of all components to one verdict about the node."""
