"""The 64 requests of proof/siege/vectors.py, each on a connection of its own."""

import asyncio

from proof.siege.alone import echo
from proof.siege.vectors import VECTORS, Vector, answered
from tests.node.server.port import Port
from tests.rows import each
from wirewatch.server.connections import Bounds
from wirewatch.server.sockets import tcp


@each("vector", VECTORS, ids=lambda one: one.name)
def test_a_request_has_the_statuses_that_are_wanted(vector: Vector) -> None:
    with tcp("127.0.0.1", 0) as listening:

        async def scenario(_here: Port) -> None:
            got = await asyncio.to_thread(answered, listening.getsockname(), vector)
            assert got == vector.wanted

        Port(listening, Bounds(), application=echo).run(scenario)
