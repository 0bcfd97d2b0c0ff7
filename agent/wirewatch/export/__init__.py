"""What goes out: Prometheus text, HTTP."""
