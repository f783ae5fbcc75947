"""Consensus ADMM, one block per item: noise in the blocks, on the sum or on each release; and a stateless walk."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from hushpoint._checks import require_nonnegative, require_positive
from hushpoint._types import Array, Indices
from hushpoint.certificates import Certificate, Theorem
from hushpoint.operators.base import Operator, is_within
from hushpoint.operators.prox import ItemsProx, RowProx
from hushpoint.operators.sensitivity import item_certificate, moved_certificate, require_smooth, stated_tolerance
from hushpoint.operators.splitting import reflection_lipschitz
from hushpoint.problem import ROWS_ARE_PRIVATE, Facts
from hushpoint.regularizers import Regularizer
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.kernels import Kernel
    from hushpoint.plan import Plan

_ANY_LAW = ("all", "cyclic", "permuted", "single", "fixed", "poisson", "walk", "own")
_OWN_NOISE = Theorem("3b", "block", _ANY_LAW, "participations")
_NOISY_SUM = Theorem("3f", "sum", ("all", "poisson", "fixed"), "participations", amplified_by=("poisson",))
FRESH_NOISE = Theorem("3e", "release", ("all", "poisson", "fixed", "own"))
_TOKEN = Theorem("3b", "block", ("walk",), "participations", walks=True)
Proxes = RowProx | ItemsProx


class ConsensusADMM(Operator):
    """Consensus ADMM over items: ``min sum_i w_i f_i(x_i) + r(z)`` subject to ``x_i = z`` (Algorithms 2, 3 and 4).

    Block i is u_i, what is shared is ``zhat``, the weighted mean of the blocks, and ``z = prox_{gamma r}(zhat)``.
    ``R_i(u) = u_i + 2 (x_i - z)`` with ``x_i = prox_{gamma f_i}(2 z - u_i)``. Messages are increments of blocks.
    Promises: one participation moves R_i by at most ``4 L gamma/(1 + gamma ridge) + 4 tolerance`` for the item (the
    first term divided by its number of rows for one row of it), or ``4 clip_residual``; Lipschitz with the constant
    of the reflected prox of ridge plus loss in the weighted norm, the other factor being 1.
    """

    name = "consensus ADMM"
    takes_many_points = True
    federates = True
    facts: Facts

    def __init__(
        self,
        facts: Facts,
        gamma: float,
        penalty: Regularizer,
        ridge: float = 0.0,
        clip_residual: float | None = None,
        tolerance: float | None = None,
        watcher: Literal["curator", "server", "peers"] = "curator",
    ) -> None:
        if facts.rows_per_item is not None:
            require_smooth(facts, "the prox of a user with several rows")
        self.facts, self.gamma, self.penalty = facts, require_positive("gamma", gamma), penalty
        self.ridge, self.watcher = require_nonnegative("ridge", ridge), watcher
        self.clip_residual = None if clip_residual is None else require_positive("clip_residual", clip_residual)
        if self.clip_residual is not None:
            self.zero_out = "the item's message is 0"
        self.blocks, self.block_size, self.message_size = facts.items, facts.width, facts.width
        self.chunk = max(64, (1 << 15) // facts.width)  # temporaries that stay in the cache
        if facts.weights == "rows":
            self.multiplicity = facts.items * facts.item_weights
        # The most rows of a user would be a natural scale, and is private: a thousand stands for it.
        scale = 0.0 if facts.rows_per_item is None else facts.gradient_bound * gamma / 1000
        self.tolerance = stated_tolerance(tolerance, scale, gamma)

    def prepare(self, rows: Rows) -> Proxes:
        if rows.offsets is None:
            return RowProx(rows, self.gamma, self.ridge)
        return ItemsProx(rows, self.gamma, self.ridge, np.full(rows.items, self.tolerance))

    def release(self, shared: Array) -> Array:
        return self.penalty.prox(shared, self.gamma)

    def local(
        self, data: Proxes, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Array]:
        message = self._residual(data, chosen, block, z)
        message *= 2 * relaxation
        if kick is not None:
            kick *= relaxation
            message += kick
        return block + message, message

    def _residual(self, data: Proxes, chosen: Indices | slice, block: Array, z: Array) -> Array:
        """``x - z``, clipped where the method clips."""
        residual = data.solve(chosen, 2 * z - block, z)
        residual -= z
        return residual if self.clip_residual is None else clip_rows(residual, self.clip_residual)

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        return shared + total / self.blocks

    def kernel(self, plan: Plan) -> Kernel | None:
        """For users of one row each: the exact shortcut where all of them move, compiled rounds and walks elsewhere."""
        rows_alone = self.facts.rows_per_item is None and self.multiplicity is None and plan.errors is None
        if type(self) is not ConsensusADMM or not rows_alone or self.clip_residual is not None:
            return None
        from hushpoint.kernels.rows import CompiledRounds, CompiledWalk
        from hushpoint.kernels.shortcut import ConsensusShortcut

        loss, penalty = self.facts.loss.code, self.penalty.code
        if plan.schedule.law == "all" and plan.schedule.cap is None:
            return ConsensusShortcut(plan, self.gamma, self.ridge, loss, penalty)
        if loss is None or penalty is None:
            return None
        compiled = CompiledWalk if plan.schedule.law == "walk" else CompiledRounds
        return compiled(plan, self.gamma, self.ridge, loss, penalty)

    def is_plausible(self, message: Array, block: Array, z: Array, relaxation: float, noise_std: float) -> bool:
        # |x - z| <= |z - u| + gamma L, and a normal vector is longer than sqrt(p) + 12 times its deviation with
        # probability below 1e-31.
        moved = float(np.linalg.norm(z - block)) + self.gamma * self.facts.gradient_bound
        noise = noise_std * (math.sqrt(self.message_size) + 12)
        return is_within(message, relaxation * (2 * (self.clip_residual or moved) + noise))

    def reach(self) -> float:
        """So that rounding stays below the tolerance of the prox.

        A prox is certified by gamma times a gradient, whose terms are as large as ``(1 + gamma beta)`` times the point.
        """
        facts, gamma = self.facts, self.gamma
        bound = self.clip_residual or gamma * facts.gradient_bound
        if not math.isfinite(bound):
            return math.inf  # there is no guarantee to keep
        growth = 1 + gamma * facts.smoothness if math.isfinite(facts.smoothness) else 1e6
        slack = self.tolerance / growth if self.tolerance else 1e-6 * bound
        longest = slack / (32 * np.finfo(np.float64).eps)
        if longest * (facts.row_norm or 1.0) < 100:
            raise ValueError(
                f"the plan solves its proxes to {self.tolerance:g}, which double precision has no room for with gamma "
                f"= {gamma:g} and rows of length {facts.row_norm}. Pass a larger tolerance= (it enters the guarantee), "
                "a smaller gamma, or rows scaled to a smaller row_norm."
            )
        return float(longest)

    def without_data(self) -> ZeroProx:
        return ZeroProx(self.gamma, self.ridge)

    def unclipped(self) -> Self:
        bare = copy.copy(self)
        bare.clip_residual = None
        return bare

    def printed_letters(self) -> dict[str, float] | None:
        letters = {"loss_lipschitz": self.facts.gradient_bound, "gamma": self.gamma, "items": self.blocks}
        return letters if type(self) is ConsensusADMM else None

    @property
    def lipschitz(self) -> float | None:
        """Of R, all blocks together, in the weighted norm; clipping x - z is not non-expansive."""
        if self.clip_residual is not None:
            return None
        return reflection_lipschitz(self.gamma, self.ridge, self.facts.smoothness + self.ridge)

    def certificate(self, relaxation: float) -> Certificate:
        facts = self.facts
        if self.clip_residual is not None:
            bound = 4 * self.clip_residual
            table = {("user", "replace-one"): bound, ("user", "zero-out"): bound / 2}
            missing = ["clip_residual bounds an item as a whole and is not non-expansive; clip on Problem is both"]
            because = (f"x - z is clipped to {self.clip_residual:g}",)
            return item_certificate(facts, table, because, missing, _OWN_NOISE)
        moved = np.full(facts.items, 4 * facts.gradient_bound * self.gamma / (1 + self.gamma * self.ridge))
        return moved_certificate(self.lipschitz, moved, facts, self.tolerance, facts.because, _OWN_NOISE)


class SummedADMM(ConsensusADMM):
    """Consensus ADMM whose blocks carry no noise: a noisy sum of clipped messages is what the server learns.

    Promises: the message of a user is at most ``2 relaxation clip_residual`` long, n w_i times in the sum.
    """

    name = "summed consensus ADMM"
    places = ("sum",)
    zero_out = "the item's message is 0"
    adjacency = "zero-out"

    is_plausible = Operator.is_plausible
    reach = Operator.reach  # the server is trusted, and its points are those of the method

    def certificate(self, relaxation: float) -> Certificate:
        if self.clip_residual is None:
            missing = ("noise on the sum needs clip_residual=C, which bounds every message.",)
            return Certificate(None, missing=missing, theorem=_NOISY_SUM)
        facts = self.facts
        bound = 2 * relaxation * self.clip_residual * facts.items * facts.item_weights
        table = {("user", "zero-out"): bound, ("user", "replace-one"): 2 * bound}
        because = (f"x - z is clipped to {self.clip_residual:g}",)
        missing = ("clipping x - z bounds a user as a whole, not one record of it",)
        return item_certificate(facts, table, because, missing, _NOISY_SUM)


class AnchoredADMM(ConsensusADMM):
    """Consensus ADMM for a trusted aggregator: blocks stay within ``radius`` of the public point and carry no noise.

    A participant keeps ``u_i = z + clip(u_i + 2 relaxation (x_i - z) - z, radius)``; the aggregator releases the mean
    of the blocks with fresh noise. The message is the change of u_i: the aggregator needs only the sum of messages.
    Promises: one item moves the mean of the blocks by at most ``2 radius w_i`` (half for zero-out); one row of a site
    by the bounds of docs/privacy.md, section 3e, which shrink with its number of rows.
    """

    name = "anchored ADMM"
    places = ("release",)
    zero_out = "the item's block is the public point"

    def __init__(
        self,
        facts: Facts,
        gamma: float,
        penalty: Regularizer,
        ridge: float = 0.0,
        radius: float | None = None,
        tolerance: float | None = None,
    ) -> None:
        super().__init__(facts, gamma, penalty, ridge, None, tolerance)
        if radius is None:
            radius = gamma * facts.gradient_bound  # at relaxation 1/2 and without ridge this never clips
        else:
            require_positive("radius", radius)
        self.radius = radius

    def local(
        self, data: Proxes, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Array]:
        offset = self._residual(data, chosen, block, z)
        offset *= 2 * relaxation
        offset += block
        offset -= z
        moved = clip_rows(offset, self.radius)
        moved += z
        return moved, moved - block

    def is_plausible(self, message: Array, block: Array, z: Array, relaxation: float, noise_std: float) -> bool:
        return is_within(message + block - z, self.radius)

    reach = Operator.reach  # the server is trusted, and its points are those of the method

    def unclipped(self) -> Self:
        bare = super().unclipped()
        bare.radius = math.inf
        return bare

    def certificate(self, relaxation: float) -> Certificate:
        facts = self.facts
        if math.isinf(self.radius):
            missing = (*facts.missing, "or pass radius=r, which bounds every block.")
            return Certificate(None, missing=missing, theorem=FRESH_NOISE)
        weights = facts.item_weights
        table = {("user", "replace-one"): 2 * self.radius * weights, ("user", "zero-out"): self.radius * weights}
        missing = facts.missing if facts.knows_rows else (ROWS_ARE_PRIVATE,)
        if not missing:
            L, zero_out_L = facts.gradient_bound, facts.gradient_bound / 2
            table["record", "replace-one"] = self._record_spread(L, relaxation) * weights
            table["record", "zero-out"] = self._record_spread(zero_out_L, relaxation) * weights
        because = (f"blocks stay within {self.radius:g} of the public point", *facts.because)
        return item_certificate(facts, table, because, missing, FRESH_NOISE)

    def _record_spread(self, bound: float, relaxation: float) -> Array:
        """How far two states of a site can be when one of its rows (gradient at most ``bound``) is replaced."""
        facts, gamma, tol = self.facts, self.gamma, self.tolerance
        whole = np.full(facts.items, 2 * self.radius)
        beta = facts.smoothness + self.ridge
        if math.isinf(beta) or relaxation == 1:
            return whole
        share = bound * gamma / facts.row_counts
        if relaxation > 0.5:
            k = max(1 - 2 * relaxation / (1 + gamma * beta), 2 * relaxation - 1)
            spread = 4 * relaxation * (share + tol) / (1 - k)
        else:
            # The largest fixed point of E <- sqrt((1 - 2 lambda r) E^2 + 2 lambda (2 share)^2) + 4 lambda tol over
            # lambda <= 1/2, with r = 1/(1 + gamma beta): the root of r E^2 - 4 tol E - (2 share)^2 as lambda -> 0.
            r = 1 / (1 + gamma * beta)
            spread = (2 * tol + np.sqrt(4 * tol**2 + 4 * r * share**2)) / r * (1 + 1e-12)
        return np.asarray(np.minimum(whole, spread))


class StatelessProx(Operator):
    """One proximal step from the token, nothing kept: ``z <- z + lambda (2 prox_{gamma f_i}(z) - 2 z + eta)``.

    Promises: non-expansive in z; one participation moves it by at most ``4 L gamma/(1 + gamma ridge) + 4 tolerance``
    before relaxation. The regulariser sits inside every f_i, so it must be zero or a ridge.
    """

    name = "stateless walk"
    watcher = "peers"
    takes_many_points = True
    facts: Facts
    rests_with_noise = True

    def __init__(self, facts: Facts, gamma: float, tolerance: float | None = None) -> None:
        rest, ridge = facts.regularizer.quadratic()
        if rest.smoothness != 0:
            raise ValueError(
                f"regularizer is {facts.regularizer!r}. Pass None, or L2 without an intercept: it sits in every user's "
                "prox on this walk."
            )
        if facts.weights != "items":
            raise ValueError("weights is 'rows'. The stateless walk visits users equally: pass weights='items'.")
        self.inner = ConsensusADMM(facts, gamma, rest, ridge, None, tolerance)
        self.facts, self.gamma, self.ridge, self.tolerance = facts, gamma, ridge, self.inner.tolerance
        self.blocks, self.message_size = facts.items, facts.width

    def prepare(self, rows: Rows) -> Proxes:
        return self.inner.prepare(rows)

    def local(
        self, data: Proxes, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Array]:
        points = np.broadcast_to(z, (len(block), self.message_size))
        message = 2 * relaxation * (data.solve(chosen, points.copy(), z) - points)
        return block, message if kick is None else message + relaxation * kick

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        return shared + total

    def certificate(self, relaxation: float) -> Certificate:
        return replace(self.inner.certificate(relaxation), theorem=_TOKEN)


class ZeroProx:
    """Stands for the data where a prox cannot be solved: the prox of a loss that is 0.

    The move is then sent and counted like any other. It is as far from the exact one as a message can be from another
    site's, which the bound for a site allows; for one record it is covered by the assumption that no prox fails.
    """

    def __init__(self, gamma: float, ridge: float) -> None:
        self._shrink = 1 + gamma * ridge

    def solve(self, chosen: Any, points: Array, guess: Array) -> Array:
        """The minimiser of the ridge alone."""
        return points / self._shrink


def clip_rows(table: Array, radius: float) -> Array:
    """Rows no longer than the radius; the table is changed in place."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", table, table))
    table[~np.isfinite(lengths)] = 0.0  # nothing of a row that overflows may pass, not even that it did
    long = np.isfinite(lengths) & (lengths > radius)
    if long.any():
        table[long] *= (radius / lengths[long])[:, None]
    return table
