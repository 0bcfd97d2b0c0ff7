# Addresses in wirewatch-alerts.yml as they are on this machine: the first agent's runbook, and Grafana. For others: put in yours.
s|^\( *\)runbook_url: .*{{ end }}docs/\(.*\)'$|\1runbook_url: http://localhost:9410/docs/\2|
s|^\( *\)dashboard_url: .*$|\1dashboard_url: 'http://localhost:3000/d/wirewatch-{{ if $labels.node }}node{{ else }}fleet{{ end }}?{{ with $labels.cluster }}var-cluster={{ urlquery . }}\&{{ end }}{{ with $labels.node }}var-node={{ urlquery . }}{{ end }}'|
