"""What a user may ask for beside the loss."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Penalty:
    """A penalty on the coefficients, never on the intercept: ``l1 |z|_1 + l2/2 |z|^2``.

    ``automatic`` asks for the L1 strength below which a coefficient cannot be told from the noise.
    """

    l1: float = 0.0
    l2: float = 0.0
    automatic: bool = False

    @property
    def sparse(self) -> bool:
        """Whether coefficients are set to zero."""
        return self.l1 > 0 or self.automatic
