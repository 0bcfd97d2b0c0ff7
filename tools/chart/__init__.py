"""The Helm chart's made parts: schema and README from its values, rules and dashboards copied into it."""
