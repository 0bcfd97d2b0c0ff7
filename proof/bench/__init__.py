"""What a poll and a scrape cost on the recorded 8-GPU node. Run as `python -m proof.bench`."""
