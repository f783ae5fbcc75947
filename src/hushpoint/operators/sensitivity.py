"""Certificates and tolerances that operators share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from hushpoint._checks import require_positive
from hushpoint._types import Array
from hushpoint.certificates import Certificate, Theorem
from hushpoint.problem import ROWS_ARE_PRIVATE, Facts


def item_certificate(
    facts: Facts, table: dict[tuple[str, str], Any], because: Any, missing: Any, theorem: Theorem
) -> Certificate:
    """A certificate for items; where an item is one row, a record and a user are the same thing."""
    if facts.rows_per_item is None:
        table = table | {("record", adjacency): bound for (unit, adjacency), bound in table.items() if unit == "user"}
    return Certificate(None, table, tuple(because), tuple(missing), theorem)


def moved_certificate(
    lipschitz: float | None,
    moved: float | Array,
    facts: Facts,
    tolerance: float,
    because: Iterable[str],
    theorem: Theorem,
) -> Certificate:
    """Sensitivity of what moves by ``moved`` for a whole item, and by its share for one row of it; half for zero-out.

    Where it is made of proxes, each is computed to the tolerance.
    """
    if facts.missing:
        return Certificate(lipschitz, missing=facts.missing, theorem=theorem)
    slack = 4 * tolerance
    if tolerance:
        because = [*because, f"proxes are solved to {tolerance:g}"]
        if facts.row_norm is None:
            because.append("no prox fails, which very long rows could make it do")
    table = {("user", "replace-one"): moved + slack, ("user", "zero-out"): moved / 2 + slack}
    if not facts.knows_rows:
        return Certificate(lipschitz, table, tuple(because), (ROWS_ARE_PRIVATE,), theorem)
    record = moved if facts.rows_per_item is None else moved / facts.row_counts
    rows = {("record", "replace-one"): record + slack, ("record", "zero-out"): record / 2 + slack}
    return Certificate(lipschitz, {**table, **rows}, tuple(because), theorem=theorem)


def require_smooth(facts: Facts, what: str) -> None:
    if math.isinf(facts.loss.smoothness):
        raise ValueError(
            f"loss is {facts.loss.name!r}, which has a kink or declares no smoothness, and {what} needs curvature. "
            "Use its smoothed form (hp.losses.Huber(transition) or hp.losses.Quantile(level, smoothing)), or items of "
            "one row."
        )


def stated_tolerance(tolerance: float | None, scale: float, gamma: float) -> float:
    """The stated distance of a computed prox from the exact one; 1e-6 of the scale by default."""
    if tolerance is not None:
        return require_positive("tolerance", tolerance)
    # Without a gradient bound there is no guarantee to protect: solve gradients to near rounding.
    return 1e-6 * scale if math.isfinite(scale) else 1e-10 * max(1.0, gamma)
