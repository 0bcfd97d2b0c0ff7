"""Grafana dashboards as code: `make generated` writes dashboards/json. What one is made of: parts.py."""
