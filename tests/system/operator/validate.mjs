// Documents of the Prometheus operator as JSON on standard input; what its schemas say of each, as JSON, null for nothing.
import { readFileSync } from "node:fs";
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";

const kinds = { PodMonitor, PrometheusRule, ServiceMonitor };
const said = JSON.parse(readFileSync(0, "utf8")).map((document) => {
  try {
    new kinds[document.kind](document).validate();
    return null;
  } catch (error) {
    return error.message;
  }
});
console.log(JSON.stringify(said));
