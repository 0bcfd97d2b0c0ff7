"""Writes docs/schemas, the JSON Schemas of all documents: `make generated`."""

import json

from pydantic import TypeAdapter

from wirewatch.documents import (
    drift,
    finding,
    installed,
    jobs,
    probes,
    state,
    status,
)
from wirewatch.documents.health import CheckDocument
from wirewatch.server import control
from wirewatch_fleet import worst
from wirewatch_fleet.pairs import document as pairs
from wirewatch_fleet.rounds import answer, plan
from wirewatch_lab.advice.cost import document as cost_document
from wirewatch_lab.advice.gpunic import settings as gpunic_document
from wirewatch_lab.advice.placement import cluster
from wirewatch_lab.advice.placement import document as placement_document
from wirewatch_lab.advice.settings import advice
from wirewatch_lab.cli.advise import bench_script
from wirewatch_lab.study import compare, export, flightjudge, parsed


def schemas() -> dict[str, str]:
    """File names in docs/schemas, with their JSON Schema."""
    modules = (
        state, status, installed, probes, jobs, control, finding, drift, export, parsed, flightjudge, compare,
        worst, pairs, answer, bench_script, cost_document, gpunic_document, advice,
        placement_document,
    )  # fmt: skip
    adapters = {name: adapter for module in modules for name, adapter in module.DOCUMENTS.items()}
    adapters["wirewatch.check.1"] = TypeAdapter(CheckDocument)
    made = {name: adapter.json_schema(mode="serialization") for name, adapter in adapters.items()}
    # What others write, where ours is what this program prints: a key with a default may be left out.
    inputs = {**cluster.DOCUMENTS, **pairs.INPUTS, **plan.INPUTS}
    made |= {name: adapter.json_schema(mode="validation") for name, adapter in inputs.items()}
    return {f"{name}.json": json.dumps(schema, indent=1) + "\n" for name, schema in made.items()}
