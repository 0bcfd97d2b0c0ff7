"""HTTP: metrics, JSON, orders, TLS; the only importer of prometheus_client, FastAPI and uvicorn."""
