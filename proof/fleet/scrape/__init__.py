"""What a fleet of thousands costs a real Prometheus: `python -m proof.fleet.scrape`, fleet.md."""
