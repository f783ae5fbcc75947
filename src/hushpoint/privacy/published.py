"""The paper's bounds that ``allow_published=True`` hands out, exactly as printed.

None of them holds as printed: each docstring says what is wrong, docs/errata.md shows it, and a guarantee made of one
says "published, not proved". Every bound is a Renyi divergence at one order alpha, replace-one, and is not rounded.
"""

from __future__ import annotations

import math

from hushpoint._checks import require, require_count, require_positive


def centralized_admm_rdp(
    *, alpha: float, steps: int, loss_lipschitz: float, gamma: float, noise_std: float, items: int
) -> float:
    """Centralized consensus ADMM as printed: ``8 alpha K L^2 gamma^2 / (sigma^2 n^2)``.

    The paper, theorem "Privacy of centralized ADMM" (Algorithm 2). False as printed (erratum 1): too small by
    up to n, and by exactly n for linear losses, because the noises of the n blocks are averaged too. It holds
    if the printed gamma means gamma/n, and for the whole-data prox of Algorithm 5.
    """
    _require_run(alpha, loss_lipschitz, gamma, noise_std, steps=steps, items=items)
    return 8 * alpha * steps * (loss_lipschitz * gamma / (noise_std * items)) ** 2


def federated_central_rdp(
    *, alpha: float, steps: int, loss_lipschitz: float, gamma: float, noise_std: float, items: int, sample_size: int
) -> float:
    """Federated ADMM against the public as printed: ``16 alpha K L^2 gamma^2 / (sigma^2 n^2)``.

    The paper, theorem on federated ADMM, central model (Algorithm 3), with the printed conditions m < n/5,
    sigma >= 4 (appendix only) and the bound on alpha with q = m/n. False (erratum 5): summing m noisy
    messages divides the loss by m, not m^2, because the noises add up too; the blocks the users keep break
    the composition; a fixed-size sample is not a Poisson sample; and the conditions are those of the
    subsampling lemma (erratum 6), in the wrong units. The remark on secure aggregation has the
    same 1/m^2.
    """
    _require_run(alpha, loss_lipschitz, gamma, noise_std, steps=steps, items=items, sample_size=sample_size)
    require(5 * sample_size < items, "sample_size", sample_size, f"Printed condition m < n/5 = {items / 5!r}.")
    require_printed_subsampling(alpha, sample_size / items, noise_std)
    return 16 * alpha * steps * (loss_lipschitz * gamma / (noise_std * items)) ** 2


def network_rdp(
    *, alpha: float, participations: int, loss_lipschitz: float, gamma: float, noise_std: float, items: int
) -> float:
    """Decentralized ADMM against a peer as printed: ``8 alpha K_i L^2 gamma^2 ln(n) / (sigma^2 n)``.

    The paper, theorem on fully decentralized ADMM (Algorithm 4), for ``sigma > 2 L gamma
    sqrt(alpha(alpha-1))``. False (erratum 7): it drops the factor 1 + c = 2 of its own weak-convexity
    proposition and the condition that goes with it, writes ln(n)/n for ln(n)/(n-1), treats a hop as
    non-expansive in z though its Lipschitz constant is up to ``1 + 2 lambda/n``, and forgets that blocks
    persist. The text's ln(n)/n^2 is not what it states. The local bound always holds.
    """
    _require_run(alpha, loss_lipschitz, gamma, noise_std, participations=participations, items=items)
    require(items >= 2, "items", items, "A network has at least 2 users.")
    least = 2 * loss_lipschitz * gamma * math.sqrt(alpha * (alpha - 1))
    remedy = f"Printed condition: above 2 L gamma sqrt(alpha (alpha - 1)) = {least!r}."
    require(noise_std > least, "noise_std", noise_std, remedy)
    return 8 * alpha * participations * (loss_lipschitz * gamma / noise_std) ** 2 * math.log(items) / items


def subsampling_exponent(alpha: float, sampling_prob: float) -> float:
    """The lemma's ``M = ln(1 + 1/(q (alpha-1)))``."""
    return math.log1p(1 / (sampling_prob * (alpha - 1)))


def subsampling_alpha_limit(*, alpha: float, sampling_prob: float, noise_std: float) -> float:
    """The printed ceiling on alpha, which itself depends on alpha.

    ``(M^2 sigma^2/2 - ln(5 sigma^2)) / (M + ln(q alpha) + 1/(2 sigma^2))``, ``M = ln(1 + 1/(q (alpha-1)))``.
    Right if sigma is measured in units of the sensitivity, and not enough by itself (erratum 6).
    """
    _require_order(alpha)
    require_positive("noise_std", noise_std)
    require(0 < sampling_prob < 1, "sampling_prob", sampling_prob, "Pass a probability between 0 and 1.")
    exponent, variance = subsampling_exponent(alpha, sampling_prob), noise_std**2
    above = exponent**2 * variance / 2 - math.log(5 * variance)
    return above / (exponent + math.log(sampling_prob * alpha) + 1 / (2 * variance))


def require_printed_subsampling(alpha: float, sampling_prob: float, noise_std: float) -> None:
    """The conditions that the subsampling lemma prints."""
    require(0 < sampling_prob < 0.2, "sampling_prob", sampling_prob, "Printed condition: q below 1/5.")
    require(noise_std >= 4, "noise_std", noise_std, "Printed condition: sigma of at least 4.")
    limit = subsampling_alpha_limit(alpha=alpha, sampling_prob=sampling_prob, noise_std=noise_std)
    require(alpha <= limit, "alpha", alpha, f"Printed condition: at most {limit!r} here. Lower alpha or q.")


def _require_run(alpha: float, loss_lipschitz: float, gamma: float, noise_std: float, **counts: int) -> None:
    _require_order(alpha)
    for name, value in (("loss_lipschitz", loss_lipschitz), ("gamma", gamma), ("noise_std", noise_std)):
        require_positive(name, value)
    for name, count in counts.items():
        require_count(name, count)


def _require_order(alpha: float) -> None:
    require(1 < alpha < math.inf, "alpha", alpha, "Renyi orders are above 1: pass for example alpha=2.0.")
