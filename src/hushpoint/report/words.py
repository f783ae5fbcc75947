"""A guarantee in words that need no training, and never stronger than the guarantee itself."""

from __future__ import annotations

import math
from statistics import NormalDist

from hushpoint.privacy.guarantee import Guarantee, _up
from hushpoint.report.page import Html, element, joined, table, warning

WATCHERS = {
    "final": "someone who sees only the final model",
    "iterates": "someone who sees the model after every step",
    "messages": "someone who sees every message (even the server itself)",
    "network": "another participant, who sees the model when it passes by",
}
LIMITS = (
    "What it does not say: that the model is right, or that it tells nothing about people in general. If it shows that "
    "smokers are ill more often, then whoever knows that you smoke learns something about you, whether or not your "
    "data were used. And every further model about the same people adds to what can be learned."
)


def guess_bound(epsilon: float, delta: float, mu: float | None = None) -> float:
    """How often the best guess between two equally likely cases can be right, at most.

    From (epsilon, delta): ``(e^epsilon + delta)/(1 + e^epsilon)``, where both error rates are equal; from mu-GDP,
    where there is a mu: ``Phi(mu/2)``. Both hold, so the smaller one does.
    """
    weight = math.exp(-epsilon)
    bound = (1 + delta * weight) / (1 + weight)
    if mu is not None:
        bound = min(bound, NormalDist().cdf(mu / 2))
    return min(1.0, bound)


def percent(share: float) -> str:
    """A share in percent, rounded up to a tenth."""
    tenths = math.ceil(round(share * 1000, 9))  # 62.4 % computed as 62.4000000001 % is meant as 62.4 %
    return "100%" if tenths >= 1000 else f"{tenths / 10:.1f}%"


def rounded_up(value: float) -> str:
    """Four digits, rounded up: a bound must not look smaller than it is."""
    return "infinite" if math.isinf(value) else _up(value)


def plainly(guarantee: Guarantee, released: str = "the model") -> Html:
    """A paragraph for everyone, what it does not say, then the statement itself and its parts."""
    parts: list[Html] = []
    if guarantee.basis == "published":
        parts.append(warning("Not proved.", "This bound was published, and cases are known in which it does not hold."))
    if guarantee.source is not None and "not for release" in guarantee.source:
        said = (
            "The noise came from a chosen seed. Whoever knows or guesses the seed can take the noise away again. "
            "Train without a seed before giving the model to anyone."
        )
        parts.append(warning("Not for release.", said))
    parts += [element("p", said) for said in _said(guarantee, released)]
    statement = element("blockquote", element("p", str(guarantee)))
    return joined([*parts, element("h3", "The formal statement"), statement, _parts(guarantee)])


def _said(guarantee: Guarantee, released: str) -> list[str]:
    if math.isinf(guarantee.epsilon):
        return [f"There is no guarantee: {released} may reveal anything about anyone whose data were used."]
    whose = "one record" if guarantee.unit == "record" else "all the data of one user"
    others = "every other record" if guarantee.unit == "record" else "the data of every other user"
    if guarantee.adjacency == "replace-one":
        change, cases = f"exchange {whose} for any other", f"that {whose} is one of two possibilities"
    else:
        change, cases = f"let {whose} count for nothing", f"that {whose} was either used or counted for nothing"
    sure = guess_bound(guarantee.epsilon, guarantee.delta, guarantee.mu)
    if sure > 0.999:
        outcome = (
            "they may guess right nearly always: at this epsilon there is almost no protection in this worst case."
        )
    else:
        outcome = f"they guess right at most {percent(sure)} of the time, however clever they are."
    if guarantee.item is not None or guarantee.observers is not None:
        outcome += " This was computed for one participant, or certain watchers, only: see the formal statement."
    return [
        f"Training added random noise, which limits what {released} can say about any one contribution: {change}, and "
        "the odds of every outcome change by a bounded factor, but for a small probability.",
        f"How much is that? Suppose that {WATCHERS[guarantee.view]} also knows {others}, and knows {cases}, each as "
        f"likely as the other. Without {released} they guess right half of the time. With it, {outcome}",
        LIMITS,
    ]


def _parts(guarantee: Guarantee) -> Html:
    epsilon, delta = rounded_up(guarantee.epsilon), rounded_up(guarantee.delta)
    rows: list[tuple[str, str, str]] = [
        ("epsilon", epsilon, "how much the odds of any outcome can change, as a factor e^epsilon"),
        ("delta", delta, "what the factor may miss, as a probability"),
    ]
    if guarantee.mu is not None:
        rows.append(
            ("mu", rounded_up(guarantee.mu), "the same as one number: no easier to tell apart than N(0,1) and N(mu,1)")
        )
    rows += [
        ("unit", guarantee.unit, "whose contribution is protected"),
        ("adjacency", guarantee.adjacency, "how a contribution may change"),
        ("view", guarantee.view, WATCHERS[guarantee.view]),
        ("basis", guarantee.basis, _where(guarantee)),
    ]
    return table("The parts of the statement", ("part", "value", "meaning"), rows)


def _where(guarantee: Guarantee) -> str:
    if guarantee.basis == "published":
        return f"why it does not hold: docs/errata.md, {guarantee.section}"
    if guarantee.basis == "stated":
        return "the rule that was registered for the operator"
    return f"the proof: docs/privacy.md, section {guarantee.section}"
