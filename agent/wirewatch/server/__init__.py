"""HTTP: Prometheus text, JSON, control, TLS; the only importer of prometheus_client and FastAPI."""
