"""The paper's other bounds exactly as printed, and their corrections: what docs/errata.md speaks of.

Nothing here is a guarantee. Several printed bounds are false; each docstring says what is wrong, and a ``corrected_*``
companion gives the statement that holds where there is one. Every bound is a Renyi divergence at one order alpha, for
the paper's replace-one adjacency unless it says otherwise. Printed bounds are not rounded; corrected ones are rounded
up. The three that ``allow_published=True`` hands out are in ``hushpoint.privacy.published``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from hushpoint._checks import require
from hushpoint.privacy.gaussian import round_up
from hushpoint.privacy.published import (
    centralized_admm_rdp,
    federated_central_rdp,
    network_rdp,
    require_printed_subsampling,
    subsampling_alpha_limit,
    subsampling_exponent,
)

__all__ = ["centralized_admm_rdp", "federated_central_rdp", "network_rdp", "subsampling_alpha_limit"]

# --- checks


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        require(0 < value < math.inf, name, value, "Pass a positive finite number.")


def _check_counts(**values: int) -> None:
    for name, value in values.items():
        whole = value >= 1 and float(value).is_integer()
        require(whole, name, value, "Pass a whole number of at least 1.")


def _check_order(alpha: float) -> None:
    require(1 < alpha < math.inf, "alpha", alpha, "Renyi orders are above 1: pass for example alpha=2.0.")


def _check_relaxation(relaxation: float) -> None:
    require(0 < relaxation <= 1, "relaxation", relaxation, "Pass a number in (0, 1], for example 0.5.")


def _check_contraction(contraction: float) -> None:
    remedy = "The theorem is for contractive operators: pass a Lipschitz constant in [0, 1)."
    require(0 <= contraction < 1, "contraction", contraction, remedy)


def _check_singular_values(operator_norm: float, smallest_singular_value: float) -> None:
    _check_positive(operator_norm=operator_norm, smallest_singular_value=smallest_singular_value)
    remedy = f"The smallest singular value of A is at most operator_norm = {operator_norm!r}."
    least = smallest_singular_value
    require(least <= operator_norm, "smallest_singular_value", least, remedy)


# --- conversion


def rdp_to_dp(epsilon: float, alpha: float, delta: float) -> float:
    """Classic epsilon of an (alpha, epsilon)-RDP algorithm: ``epsilon + ln(1/delta)/(alpha-1)``.

    The paper, section "Differential Privacy" (Mironov 2017). True, and loose: `hushpoint.privacy.gaussian`
    has a better conversion, and an exact answer for Gaussian releases.
    """
    _check_order(alpha)
    require(epsilon >= 0, "epsilon", epsilon, "Pass a Renyi divergence, a number of at least 0.")
    require(0 < delta < 1, "delta", delta, "Pass a probability between 0 and 1, for example 1e-6.")
    return epsilon + math.log(1 / delta) / (alpha - 1)


# --- sensitivity


def general_sensitivity(
    *,
    loss_lipschitz: float,
    gamma: float,
    relaxation: float,
    items: int,
    operator_norm: float = 1.0,
    smallest_singular_value: float = 1.0,
) -> float:
    """Shift of the general ADMM update as printed: ``4 lambda L gamma |A| / (n w)``.

    The paper, appendix "Sensitivity Bounds", for A with smallest singular value w. False in general (erratum
    2): the quadratic is ``w^2/gamma``-strongly convex, not ``w/gamma``, and ``|A|/w`` should be ``1/w``. With
    A = 0.1 I and linear losses the true shift is 10 times larger. Too large, but true, where ``|A| >= 1``.
    """
    _check_positive(loss_lipschitz=loss_lipschitz, gamma=gamma)
    _check_relaxation(relaxation)
    _check_counts(items=items)
    _check_singular_values(operator_norm, smallest_singular_value)
    return 4 * relaxation * loss_lipschitz * gamma * operator_norm / (items * smallest_singular_value)


def corrected_general_sensitivity(
    *,
    loss_lipschitz: float,
    gamma: float,
    relaxation: float,
    items: int,
    operator_norm: float = 1.0,
    smallest_singular_value: float = 1.0,
    strong_convexity: float = 0.0,
) -> float:
    """Shift of the general ADMM update: ``4 lambda L gamma s / (n (s^2 + gamma m))``.

    s is ``sqrt(gamma m)`` clipped to the singular values ``[w, |A|]``: ``4 lambda L gamma/(n w)`` for m = 0
    and ``4 lambda L gamma/(n (1 + gamma m))`` for A = I. Attained by linear losses. Needs ``f = mean loss +
    h``, each item's loss convex and L-Lipschitz, h data-free and m-strongly convex, A of full column rank; g,
    B, c data-free.

    Proof: with d = x - x', convexity gives ``|A d|^2/gamma + m |d|^2 <= (2L/n) |d|``; put ``|A d| = s |d|``.
    """
    _check_positive(loss_lipschitz=loss_lipschitz, gamma=gamma)
    _check_relaxation(relaxation)
    _check_counts(items=items)
    _check_singular_values(operator_norm, smallest_singular_value)
    require(strong_convexity >= 0, "strong_convexity", strong_convexity, "Pass a number of at least 0.")
    curvature = gamma * strong_convexity
    scale = min(max(math.sqrt(curvature), smallest_singular_value), operator_norm)
    return round_up(4 * relaxation * loss_lipschitz * gamma * scale / (items * (scale**2 + curvature)), 3e-15)


def consensus_sensitivity(*, loss_lipschitz: float, gamma: float, relaxation: float, items: int) -> float:
    """Shift of the consensus ADMM update as printed: ``4 lambda L gamma / n``.

    The paper, appendix "Sensitivity Bounds", special case of the consensus problem. False (erratum 1): the
    line before it, ``4 lambda L gamma`` for the changed block, already is the shift of the whole state, whose
    other blocks do not move. It holds if the printed gamma means gamma/n.
    """
    _check_positive(loss_lipschitz=loss_lipschitz, gamma=gamma)
    _check_relaxation(relaxation)
    _check_counts(items=items)
    return 4 * relaxation * loss_lipschitz * gamma / items


def corrected_consensus_sensitivity(*, loss_lipschitz: float, gamma: float, relaxation: float) -> float:
    """Shift of the consensus ADMM update: ``4 lambda L gamma``, all of it in the changed item's block."""
    _check_positive(loss_lipschitz=loss_lipschitz, gamma=gamma)
    _check_relaxation(relaxation)
    return round_up(4 * relaxation * loss_lipschitz * gamma)


# --- privacy theorems


def _check_privacy(alpha: float, loss_lipschitz: float, gamma: float, noise_std: float) -> None:
    _check_order(alpha)
    _check_positive(loss_lipschitz=loss_lipschitz, gamma=gamma, noise_std=noise_std)


def general_admm_rdp(
    *,
    alpha: float,
    steps: int,
    loss_lipschitz: float,
    gamma: float,
    noise_std: float,
    items: int,
    operator_norm: float = 1.0,
    smallest_singular_value: float = 1.0,
) -> float:
    """General private ADMM as printed: ``8 alpha K |A|^2 L^2 gamma^2 / (sigma^2 n^2 w^2)``.

    The paper, appendix theorem "Private classic centralized ADMM" (Algorithm 5). False in general, too small
    by ``1/|A|^2`` where ``|A| < 1`` (erratum 2); "full rank" must read full column rank. True for A = I.
    """
    _check_privacy(alpha, loss_lipschitz, gamma, noise_std)
    _check_counts(steps=steps, items=items)
    _check_singular_values(operator_norm, smallest_singular_value)
    ratio = loss_lipschitz * gamma * operator_norm / (noise_std * items * smallest_singular_value)
    return 8 * alpha * steps * ratio**2


def corrected_general_admm_rdp(
    *,
    alpha: float,
    steps: int,
    loss_lipschitz: float,
    gamma: float,
    noise_std: float,
    items: int,
    operator_norm: float = 1.0,
    smallest_singular_value: float = 1.0,
    strong_convexity: float = 0.0,
) -> float:
    """General private ADMM: ``8 alpha K L^2 gamma^2 / (sigma^2 n^2 w^2)`` without strong convexity.

    K noisy updates, all seen, of the sensitivity of `corrected_general_sensitivity` (relaxation cancels: the
    noise that reaches u is ``lambda sigma``). The best form of the same fact is ``mu = sqrt(K) Delta/(lambda
    sigma)``.
    """
    _check_privacy(alpha, loss_lipschitz, gamma, noise_std)
    _check_counts(steps=steps, items=items)
    shift = corrected_general_sensitivity(
        loss_lipschitz=loss_lipschitz,
        gamma=gamma,
        relaxation=1.0,
        items=items,
        operator_norm=operator_norm,
        smallest_singular_value=smallest_singular_value,
        strong_convexity=strong_convexity,
    )
    return round_up(alpha * steps * (shift / noise_std) ** 2 / 2)


def corrected_centralized_admm_rdp(
    *, alpha: float, steps: int, loss_lipschitz: float, gamma: float, noise_std: float
) -> float:
    """Centralized consensus ADMM: ``8 alpha K L^2 gamma^2 / sigma^2``.

    K counts the updates of the changed item's block. Holds against anyone who sees every block after every
    update; it does not shrink with n.
    """
    _check_privacy(alpha, loss_lipschitz, gamma, noise_std)
    _check_counts(steps=steps)
    return round_up(8 * alpha * steps * (loss_lipschitz * gamma / noise_std) ** 2, 2e-15)


def federated_local_rdp(
    *, alpha: float, participations: int, loss_lipschitz: float, gamma: float, noise_std: float
) -> float:
    """Federated ADMM against the server: ``8 alpha K_i L^2 gamma^2 / sigma^2`` for user i.

    The paper, theorem on federated ADMM, local model, and "LDP of federated ADMM" (Algorithm 3). True, if the
    initial block is public, the user adds to its state exactly the noisy vector it sends, a lost message
    counts as sent, and K_i is capped by the user. (The appendix hides it behind an O() and cites the false
    1/n bound.)
    """
    _check_privacy(alpha, loss_lipschitz, gamma, noise_std)
    _check_counts(participations=participations)
    return 8 * alpha * participations * (loss_lipschitz * gamma / noise_std) ** 2


def corrected_federated_central_rdp(
    *, alpha: float, participations: int, loss_lipschitz: float, gamma: float, noise_std: float
) -> float:
    """Federated ADMM against the public: the local bound ``8 alpha K_i L^2 gamma^2 / sigma^2``.

    Who sees only the model sees less than the server. No amplification by sampling or by aggregation is
    proved for users that keep noisy blocks.
    """
    _check_privacy(alpha, loss_lipschitz, gamma, noise_std)
    _check_counts(participations=participations)
    return round_up(8 * alpha * participations * (loss_lipschitz * gamma / noise_std) ** 2, 2e-15)


def corrected_network_rdp(
    *, alpha: float, participations: int, loss_lipschitz: float, gamma: float, noise_std: float, items: int
) -> float:
    """Decentralized ADMM with the arithmetic put right: ``16 alpha K_i L^2 gamma^2 ln(n) / (sigma^2 (n-1))``.

    For ``sigma >= 2 sqrt(2) L gamma sqrt(alpha(alpha-1))``: the weak-convexity proposition with c = 1, and
    ``E[1/t] = ln(n)/(n-1)`` for t geometric(1/n). Still not proved: the proof takes a hop to be non-expansive
    in z and forgets that blocks persist, and repeating that is all this function does. Treat it as published,
    never as a guarantee. For n of at most 3 it is larger than the local bound `federated_local_rdp`, which
    always holds.
    """
    _check_privacy(alpha, loss_lipschitz, gamma, noise_std)
    _check_counts(participations=participations, items=items)
    require(items >= 2, "items", items, "A network has at least 2 users.")
    least = 2 * math.sqrt(2) * loss_lipschitz * gamma * math.sqrt(alpha * (alpha - 1))
    remedy = f"Needs at least 2 sqrt(2) L gamma sqrt(alpha (alpha - 1)) = {least!r}."
    require(noise_std >= least, "noise_std", noise_std, remedy)
    local = 8 * alpha * participations * (loss_lipschitz * gamma / noise_std) ** 2
    return round_up(2 * local * math.log(items) / (items - 1), 3e-15)


# --- amplification lemmas


def subsampled_gaussian_rdp(*, alpha: float, sampling_prob: float, noise_std: float, sensitivity: float = 1.0) -> float:
    """Subsampled Gaussian mechanism as printed: ``2 alpha q^2 Delta^2 / sigma^2``.

    The paper, lemma "Amplification by subsampling", for q < 1/5, sigma >= 4 and alpha up to
    `subsampling_alpha_limit`. False as printed (erratum 6): sigma must be measured in units of the
    sensitivity in both conditions, and a second ceiling on alpha is missing, without which the bound can be
    40,000 times too small (q = 3.7e-4, sigma = 4, alpha = 260).
    """
    _check_order(alpha)
    _check_positive(noise_std=noise_std, sensitivity=sensitivity)
    require_printed_subsampling(alpha, sampling_prob, noise_std)
    return 2 * alpha * (sampling_prob * sensitivity / noise_std) ** 2


def corrected_subsampling_violations(
    *, alpha: float, sampling_prob: float, noise_std: float, sensitivity: float = 1.0
) -> tuple[str, ...]:
    """The conditions of the closed-form subsampling bound that fail; none when it may be used.

    With ``s = sigma/Delta``: ``q <= 1/5``, ``s >= 4``, ``alpha <= M s^2/2 - ln(s^2)`` (missing in print), and
    the printed ceiling with s for sigma (Mironov, Talwar and Zhang 2019, theorem 11).
    """
    _check_order(alpha)
    _check_positive(noise_std=noise_std, sensitivity=sensitivity)
    scale = noise_std / sensitivity
    printed = subsampling_alpha_limit(alpha=alpha, sampling_prob=sampling_prob, noise_std=scale)
    missing = subsampling_exponent(alpha, sampling_prob) * scale**2 / 2 - math.log(scale**2)
    conditions = (
        (sampling_prob <= 0.2, f"sampling_prob = {sampling_prob!r} is above 1/5"),
        (scale >= 4, f"noise_std / sensitivity = {scale!r} is below 4"),
        (alpha <= missing, f"alpha = {alpha!r} is above M s^2/2 - ln(s^2) = {missing!r}"),
        (alpha <= printed, f"alpha = {alpha!r} is above the printed limit {printed!r}, s for sigma"),
    )
    return tuple(message for holds, message in conditions if not holds)


def corrected_subsampled_gaussian_rdp(
    *, alpha: float, sampling_prob: float, noise_std: float, sensitivity: float = 1.0
) -> float:
    """Poisson-subsampled Gaussian mechanism: ``2 alpha q^2 Delta^2 / sigma^2`` under all its conditions.

    Zero-out adjacency: Delta bounds the norm of one item's contribution to the sum, and each item is in the
    sample independently with probability q. Not for fixed-size samples, and not for replace-one by doubling
    Delta.
    """
    violations = corrected_subsampling_violations(
        alpha=alpha, sampling_prob=sampling_prob, noise_std=noise_std, sensitivity=sensitivity
    )
    if violations:
        raise ValueError(f"{'; '.join(violations)}. Lower alpha, or account with privacy-loss distributions.")
    return round_up(2 * alpha * (sampling_prob * sensitivity / noise_std) ** 2, 2e-15)


def weak_convexity_rdp(
    divergences: Sequence[float], probabilities: Sequence[float], *, alpha: float, slack: float = 1.0
) -> float:
    """Divergence between two mixtures as printed: ``(1 + c) sum_i rho_i D_i``.

    The paper, proposition "Weak convexity of Renyi divergence" (Feldman et al. 2018): if every
    ``D_i <= c/(alpha-1)`` with c in (0, 1]. True; the paper's own network theorem forgets the factor 1 + c.

    Parameters
    ----------
    divergences : sequence of float
        ``D_alpha(mu_i || nu_i)``, one for each component.
    probabilities : sequence of float
        The mixing law rho, the same for both mixtures.
    alpha : float
        Order above 1.
    slack : float
        c, in (0, 1].
    """
    _check_order(alpha)
    require(0 < slack <= 1, "slack", slack, "Printed condition: c in (0, 1].")
    count = len(probabilities)
    require(len(divergences) == count > 0, "len(probabilities)", count, "Pass one for each divergence.")
    require(min(probabilities) >= 0, "min(probabilities)", min(probabilities), "Pass numbers of at least 0.")
    total = math.fsum(probabilities)
    require(abs(total - 1) <= 1e-9, "sum(probabilities)", total, "Divide them by their sum.")
    require(min(divergences) >= 0, "min(divergences)", min(divergences), "Pass numbers of at least 0.")
    limit = slack / (alpha - 1)
    remedy = f"Printed condition: at most c/(alpha - 1) = {limit!r}."
    require(max(divergences) <= limit, "max(divergences)", max(divergences), remedy)
    mean = math.fsum(weight * value for weight, value in zip(probabilities, divergences, strict=True))
    return (1 + slack) * mean


def amplification_by_iteration_rdp(
    shifts: Sequence[float], allotments: Sequence[float], noise_stds: Sequence[float], *, alpha: float
) -> float:
    """Divergence of the last of K noisy non-expansive steps: ``sum_k alpha a_k^2 / (2 sigma_k^2)``.

    The paper, theorem "Privacy amplification by iteration" (Feldman et al. 2018), with Gaussian noise.
    Printed conditions: ``sum_{j<=k} a_j <= sum_{j<=k} s_j`` for every k, equal at k = K. True (the primed
    iteration should apply T', not T). The network proof puts divergences where the shifts s_k and a_k belong.

    Parameters
    ----------
    shifts : sequence of float
        ``s_k``, how far the two maps of step k are apart, at least 0.
    allotments : sequence of float
        ``a_k``, the part of the shifts that the noise of step k hides, at least 0.
    noise_stds : sequence of float
        Standard deviation of the noise of step k.
    alpha : float
        Order above 1.
    """
    _check_order(alpha)
    count = len(allotments)
    require(len(shifts) == count > 0, "len(allotments)", count, "Pass one for each shift.")
    require(len(noise_stds) == count, "len(noise_stds)", len(noise_stds), "Pass one for each shift.")
    _check_allotments(shifts, allotments)
    for index, noise_std in enumerate(noise_stds):
        _check_positive(**{f"noise_stds[{index}]": noise_std})
    return math.fsum(alpha * (a / s) ** 2 / 2 for a, s in zip(allotments, noise_stds, strict=True))


def _check_allotments(shifts: Sequence[float], allotments: Sequence[float]) -> None:
    require(min(shifts) >= 0, "min(shifts)", min(shifts), "Pass numbers of at least 0.")
    require(min(allotments) >= 0, "min(allotments)", min(allotments), "Pass numbers of at least 0.")
    total, spent = math.fsum(shifts), math.fsum(allotments)
    slack = 1e-12 * total
    for k, (shifted, hidden) in enumerate(zip(accumulate(shifts), accumulate(allotments), strict=True), 1):
        remedy = f"Printed condition: at most {shifted!r}, the shifts so far."
        require(hidden <= shifted + slack, f"sum(allotments[:{k}])", hidden, remedy)
    remedy = f"Printed condition: equal to sum(shifts) = {total!r}."
    require(abs(spent - total) <= slack, "sum(allotments)", spent, remedy)


# --- utility


def utility_bound(
    *,
    steps: int,
    contraction: float,
    block_prob: float,
    dimension: int,
    noise_std: float,
    initial_distance_squared: float,
    error_std: float = 0.0,
) -> float:
    """Bound on ``E|u_{k+1} - u*|^2`` after k steps as printed.

    The paper, theorem "Utility guarantees for noisy fixed-point iterations": ``(1 - q^2 (1-tau)/8)^k D + 8
    ((sqrt(p) sigma + zeta)/(sqrt(q)(1-tau)) + (p sigma^2 + zeta^2)/(q^3 (1-tau)^3))`` for some relaxation, if
    ``sigma^2 > 1 - tau``. The proof takes a relaxation above 1 unless tau is tiny (erratum 8,
    `proof_relaxation`); the statement is true all the same, and loose by a factor from about 50 to 1e9. The
    dimension is that of u: in consensus, items times features.

    Parameters
    ----------
    steps : int
        k, at least 1.
    contraction : float
        tau, the Lipschitz constant of R, in [0, 1).
    block_prob : float
        q, the probability that a block is active, in (0, 1].
    dimension : int
        p, the dimension of u.
    noise_std : float
        sigma of Algorithm 1.
    initial_distance_squared : float
        D, at least ``|u_0 - u*|^2``.
    error_std : float
        zeta, with ``E|e_k|^2 <= zeta^2``.
    """
    _check_counts(steps=steps, dimension=dimension)
    _check_utility(contraction, block_prob, noise_std, error_std)
    distance = initial_distance_squared
    require(0 <= distance < math.inf, "initial_distance_squared", distance, "Pass a number of at least 0.")
    gap = 1 - contraction
    remedy = f"Printed condition: noise_std^2 above 1 - contraction = {gap!r}."
    require(noise_std**2 > gap, "noise_std", noise_std, remedy)
    linear = (math.sqrt(dimension) * noise_std + error_std) / (math.sqrt(block_prob) * gap)
    quadratic = (dimension * noise_std**2 + error_std**2) / (block_prob * gap) ** 3
    return (1 - block_prob**2 * gap / 8) ** steps * distance + 8 * (linear + quadratic)


def _check_utility(contraction: float, block_prob: float, noise_std: float, error_std: float) -> None:
    _check_contraction(contraction)
    require(0 < block_prob <= 1, "block_prob", block_prob, "Pass a probability in (0, 1].")
    _check_positive(noise_std=noise_std)
    require(0 <= error_std < math.inf, "error_std", error_std, "Pass a number of at least 0.")


def _learning_rate_constants(
    contraction: float, block_prob: float, dimension: int, noise_std: float, error_std: float
) -> tuple[float, float]:
    """The lemma's c, in ``(1+c)(1-tau) = (sigma sqrt(p) + zeta)/sqrt(q)``, and ``1 - sqrt(1 - q(1-tau))``."""
    _check_counts(dimension=dimension)
    _check_utility(contraction, block_prob, noise_std, error_std)
    noise = (noise_std * math.sqrt(dimension) + error_std) / math.sqrt(block_prob)
    excess = noise / (1 - contraction) - 1
    remedy = "Printed condition: (sigma sqrt(p) + zeta)/sqrt(q) above 1 - tau, so that c is positive."
    require(excess > 0, "noise_std", noise_std, remedy)
    product = block_prob * (1 - contraction)
    return excess, product / (1 + math.sqrt(1 - product))


def learning_rate_range(
    *, contraction: float, block_prob: float, dimension: int, noise_std: float, error_std: float = 0.0
) -> tuple[float, float]:
    """The printed open interval of relaxations for which the utility proof converges.

    The paper, lemma "Choices of the Learning Rate": with ``c`` from ``(sigma sqrt(p) + zeta)/sqrt(q) =
    (1+c)(1-tau)`` and ``b = sqrt(1 - q(1-tau))``, from ``h = (1+c-q)/((1+c)(1-b))`` to ``h (1/2 + sqrt(1 + 4
    (1+c)(1-b)/((1-tau)(1+c-q)^2))/2)``. It is where the proof's rate chi lies in (0, 1), and mostly above 1,
    where no relaxation in (0, 1] is (erratum 8); it is not needed for convergence.
    """
    excess, one_minus_b = _learning_rate_constants(contraction, block_prob, dimension, noise_std, error_std)
    rest = 1 + excess - block_prob
    low = rest / ((1 + excess) * one_minus_b)
    inside = 1 + 4 * (1 + excess) * one_minus_b / ((1 - contraction) * rest**2)
    return low, low * (0.5 + 0.5 * math.sqrt(inside))


def proof_relaxation(
    *, contraction: float, block_prob: float, dimension: int, noise_std: float, error_std: float = 0.0
) -> float:
    """The relaxation that the utility proof takes: ``(1 - q/(2(1+c)))/(1-b)``.

    The paper, proof of the utility theorem, step 2; c and b as in `learning_rate_range`. Above 1 unless tau
    is tiny, so not a relaxation of Algorithm 1 (erratum 8).
    """
    excess, one_minus_b = _learning_rate_constants(contraction, block_prob, dimension, noise_std, error_std)
    return (1 - block_prob / (2 * (1 + excess))) / one_minus_b


def _check_tradeoff(
    alpha: float, epsilon: float, loss_lipschitz: float, gamma: float, items: int, dimension: int, tau: float
) -> None:
    _check_order(alpha)
    _check_positive(epsilon=epsilon, loss_lipschitz=loss_lipschitz, gamma=gamma)
    _check_counts(items=items, dimension=dimension)
    _check_contraction(tau)


def centralized_tradeoff(
    *,
    alpha: float,
    epsilon: float,
    loss_lipschitz: float,
    gamma: float,
    items: int,
    dimension: int,
    contraction: float,
) -> float:
    """Rate of ``E|u_K - u*|^2`` as printed, constants 1, logarithms left out.

    The paper, corollary "Privacy-utility trade-off of centralized ADMM": ``sqrt(p alpha) L gamma/(sqrt(eps) n
    (1-tau)) + p alpha L^2 gamma^2/(eps n^2 (1-tau)^3)``. A rate, not a bound. It rests on the false
    centralized theorem (erratum 1), puts the p features where the utility theorem has the n p coordinates of
    u, and counts K as logarithmic though ``((7+tau)/8)^K`` takes K of order 1/(1-tau), which multiplies the
    second term and, under a root, the first.
    """
    _check_tradeoff(alpha, epsilon, loss_lipschitz, gamma, items, dimension, contraction)
    first = math.sqrt(dimension * alpha / epsilon) * loss_lipschitz * gamma / items
    return first / (1 - contraction) + first**2 / (1 - contraction) ** 3


def federated_tradeoff(
    *,
    alpha: float,
    epsilon: float,
    loss_lipschitz: float,
    gamma: float,
    items: int,
    dimension: int,
    contraction: float,
    sampling_fraction: float,
) -> float:
    """Rate of ``E|u_K - u*|^2`` as printed, constants 1, logarithms left out.

    The paper, corollary "Privacy-utility trade-off of federated ADMM in the central model", r = m/n in (0,
    1/5): ``sqrt(p alpha) L gamma/(sqrt(eps r) n (1-tau)) + p alpha L^2 gamma^2/(eps r^2 n^2 (1-tau)^3)``. A
    rate, not a bound. It rests on the false central theorem (erratum 5); its own proof has ``n/m^3 = 1/(r^3
    n^2)``, so r^2 should be r^3; p should be n p; and K is of order ``1/(r^2 (1-tau))``, not logarithmic.
    """
    _check_tradeoff(alpha, epsilon, loss_lipschitz, gamma, items, dimension, contraction)
    fraction = sampling_fraction
    require(0 < fraction < 0.2, "sampling_fraction", fraction, "Printed condition: between 0 and 1/5.")
    size = math.sqrt(dimension * alpha / epsilon) * loss_lipschitz * gamma / items
    linear = size / (math.sqrt(fraction) * (1 - contraction))
    return linear + (size / fraction) ** 2 / (1 - contraction) ** 3


def decentralized_tradeoff(
    *,
    alpha: float,
    epsilon: float,
    loss_lipschitz: float,
    gamma: float,
    items: int,
    dimension: int,
    contraction: float,
) -> float:
    """Rate of ``E|u_K - u*|^2`` as printed, constants 1, logarithms left out.

    The paper, corollary "Privacy-utility trade-off of decentralized ADMM": ``sqrt(p alpha) L gamma/(sqrt(eps
    n) (1-tau)) + p alpha L^2 gamma^2/(eps n (1-tau)^3)``. A rate, not a bound. It rests on the false network
    theorem (erratum 7); in its own proof the second term carries ``n^3/n^2 = n``, not 1/n, which makes it n^2
    times larger; p should be n p; and K is of order ``n^2/(1-tau)``, not logarithmic.
    """
    _check_tradeoff(alpha, epsilon, loss_lipschitz, gamma, items, dimension, contraction)
    first = math.sqrt(dimension * alpha / (epsilon * items)) * loss_lipschitz * gamma
    return first / (1 - contraction) + first**2 / (1 - contraction) ** 3
