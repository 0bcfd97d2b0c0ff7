"""Grafana dashboards as code: `make dashboards` writes dashboards/json. What one is made of: parts.py."""
