"""The Jobs and Services of rounds of pairs, held to Kubernetes' own schemas."""

from dataclasses import replace

import kubernetes_validate
import pytest

from tests.fleet.rounds.test_jobs import OPTIONS, TEMPLATE, made
from wirewatch_fleet.rounds.jobs import PairJobsOptions, service

pytestmark = pytest.mark.system


@pytest.mark.parametrize("version", ["1.29", "1.33", "1.36"])
@pytest.mark.parametrize("options", [
    OPTIONS, replace(OPTIONS, queue="low", priority="lowest", owner=("me", "u-1")),
    replace(OPTIONS, template={"spec": {**TEMPLATE["spec"], "hostNetwork": True}}),
])  # fmt: skip
def test_the_api_server_knows_every_key(version: str, options: PairJobsOptions) -> None:
    one = made(options=options)
    kubernetes_validate.validate(one, version, strict=True)
    one["metadata"]["uid"] = "u-2"
    kubernetes_validate.validate(service(one, 28700), version, strict=True)
