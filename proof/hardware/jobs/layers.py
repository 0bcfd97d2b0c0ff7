"""The layers of a toy tensor-parallel transformer with random weights: one rank's part of them."""

import torch
import torch.distributed as dist

from proof.hardware.jobs.tokens import REDUCTIONS


class Layers:
    """One rank's part of all layers for a hidden size, and a state of so many tokens."""

    def __init__(self, hidden: int, tokens: int, ranks: int, device: torch.device) -> None:
        part = hidden // ranks
        scale = hidden**-0.5

        def matrix(rows: int, columns: int) -> torch.Tensor:
            return scale * torch.randn((rows, columns), dtype=torch.bfloat16, device=device)

        self.pairs = [(matrix(hidden, part), matrix(part, hidden)) for _ in range(REDUCTIONS)]
        self.state = torch.randn((tokens, hidden), dtype=torch.bfloat16, device=device)
        self.inner = torch.empty((tokens, part), dtype=torch.bfloat16, device=device)
        self.outer = torch.empty_like(self.state)

    def step(self) -> None:
        self._pass(reduced=True)

    def compute(self) -> None:
        self._pass(reduced=False)

    def sequence(self) -> None:
        in_a_row(self.outer)

    def _pass(self, *, reduced: bool) -> None:
        for columns, rows in self.pairs:
            torch.matmul(self.state, columns, out=self.inner)
            torch.matmul(self.inner, rows, out=self.outer)
            if reduced:
                dist.all_reduce(self.outer)


def in_a_row(data: torch.Tensor) -> None:
    """As many all-reduces as a pass has."""
    for _ in range(REDUCTIONS):
        dist.all_reduce(data)
