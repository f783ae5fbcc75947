"""What a viewer learns from a plan: a table from (operator, noise place, sampling, view) to a rule.

A rule answers with a ``Spend``. A missing row is an error, never a guess; a narrower view without a theorem of its own
gets the guarantee of the wider view, named as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hushpoint._checks import require_choice, require_count
from hushpoint.certificates import ADJACENCIES, UNITS, Certificate
from hushpoint.labels import READ_FROM_LABELS
from hushpoint.noise import Source
from hushpoint.operators.base import LOSS_IS_ZERO
from hushpoint.privacy import published
from hushpoint.privacy.gaussian import ORDERS, compose_mu, gdp_epsilon, rdp_epsilon
from hushpoint.privacy.guarantee import VIEWS, Adjacency, Basis, Guarantee, Unit, View, checked_delta
from hushpoint.privacy.last_iterate import inexact_shift, last_iterate_mu
from hushpoint.schedules import FixedSample, PoissonSample, Walk, sampling_of

if TYPE_CHECKING:
    from hushpoint.plan import Plan


@dataclass(frozen=True)
class Spend:
    """A privacy loss: epsilon at every delta, and mu where it is Gaussian.

    ``calibrated(epsilon, delta)`` is about the least noise for a budget, where a rule knows it directly.
    """

    epsilon: Callable[[float], float]
    section: str
    because: tuple[str, ...]
    view: View
    mu: float | None = None
    basis: Basis = "proved"
    calibrated: Callable[[float, float], float] | None = None


@dataclass(frozen=True)
class Question:
    """A plan, and who asks about whom."""

    plan: Plan
    view: View
    adjacency: Adjacency
    unit: Unit
    item: int | None
    steps: int
    allow_published: bool
    observers: tuple[int, ...] | None

    @property
    def certificate(self) -> Certificate:
        """The promises of one step."""
        return self.plan.certificate

    def ratio(self) -> float:
        """Sensitivity over noise of one participation."""
        return self.certificate.shift(self.unit, self.adjacency, self.item) / self.plan.noise.std

    @property
    def item_level(self) -> bool:
        """Whether the unit is a whole item (and not one row among several of it)."""
        facts = self.plan.facts
        return self.unit == "user" or facts is None or facts.unit == "record"


Rule = Callable[[Question], Spend]


def account(
    plan: Plan,
    delta: float,
    *,
    view: View | None = None,
    adjacency: Adjacency | None = None,
    unit: Unit | None = None,
    item: int | None = None,
    steps: int | None = None,
    source: Source | None = None,
    allow_published: bool = False,
    observers: Sequence[int] | None = None,
) -> Guarantee:
    """The guarantee of a plan; see ``Plan.guarantee``."""
    checked_delta(delta)
    question = ask(plan, view, adjacency, unit, item, steps, allow_published, observers)
    stated: dict[str, Any] = {
        "delta": delta,
        "unit": question.unit,
        "adjacency": question.adjacency,
        "item": question.item,
        "observers": question.observers,
        "source": None if source is None else source.describe(),
    }
    if plan.noise.std == 0:
        question.certificate.shift(question.unit, question.adjacency, question.item)
        missing = ("there is no noise: pass noise_std > 0 or a budget",)
        return Guarantee(
            math.inf, mu=math.inf, view=question.view, basis="proved", section="1", assumptions=missing, **stated
        )
    spend = answer(question)
    meaning: tuple[str, ...] = ()
    if question.adjacency == "zero-out":
        meaning = (f"zero-out means that {plan.operator.zero_out if question.item_level else LOSS_IS_ZERO}",)
    if _rows_count(question):
        meaning = (*meaning, "the number of rows of each user counts as public")
    if plan.problem is not None and plan.problem.classes_read:
        meaning = (*meaning, READ_FROM_LABELS)
    because = (*spend.because, *meaning, f"{question.steps} noisy steps")
    return Guarantee(
        spend.epsilon(delta),
        mu=spend.mu,
        view=spend.view,
        basis=spend.basis,
        section=spend.section,
        assumptions=because,
        **stated,
    )


def _rows_count(question: Question) -> bool:
    """Whether the answer depends on how many rows users have."""
    facts = question.plan.facts
    return facts is not None and facts.unit == "user" and (facts.weights == "rows" or not question.item_level)


def ask(
    plan: Plan,
    view: View | None = None,
    adjacency: Adjacency | None = None,
    unit: Unit | None = None,
    item: int | None = None,
    steps: int | None = None,
    allow_published: bool = False,
    observers: Sequence[int] | None = None,
) -> Question:
    """A question with the defaults of the plan filled in."""
    view = plan.default_view if view is None else view
    adjacency = plan.default_adjacency if adjacency is None else adjacency
    unit = plan.default_unit if unit is None else unit
    require_choice("view", view, VIEWS)
    require_choice("adjacency", adjacency, ADJACENCIES)
    require_choice("unit", unit, UNITS)
    if item is not None and plan.facts is not None:
        require_count("item", item, least=0, most=plan.facts.items - 1)
    if observers is not None and view != "network":
        raise ValueError(f"observers is given and view is {view!r}. Observers look at the 'network' view only.")
    watchers = None if observers is None else tuple(observers)
    for watcher in watchers or ():
        require_count("observers", watcher, least=0, most=plan.operator.blocks - 1)
    return Question(
        plan, view, adjacency, unit, item, plan.steps if steps is None else steps, allow_published, watchers
    )


def answer(question: Question) -> Spend:
    """The spend of the rule that the table has for a question."""
    plan = question.plan
    if plan.errors is not None:
        raise ValueError("errors is given and may carry data, so there is no guarantee. Drop errors= to get one.")
    key = plan.operator.family, plan.noise.place, sampling_of(plan.schedule)
    rules = _TABLE.get(key)
    if rules is None:
        raise ValueError(
            f"there is no privacy theorem for the operator family {key[0]!r} with noise on the {key[1]} and the "
            f"schedule {key[2]!r}. Use a combination that hushpoint.methods builds, or block noise on every block."
        )
    if question.view not in rules:
        raise ValueError(
            f"view is {question.view!r}, and nobody has that view of {plan.method or plan.operator.name}. "
            f"Choose one of: {', '.join(map(repr, rules))}."
        )
    return rules[question.view](question)


def gaussian_spend(question: Question, mu: float, section: str, because: tuple[str, ...], view: View) -> Spend:
    """A Gaussian loss, with a note where the view is wider than the one asked for."""
    return Spend(lambda delta: gdp_epsilon(mu, delta), section, _named(question, view, because), view, mu)


def _named(question: Question, view: View, because: tuple[str, ...]) -> tuple[str, ...]:
    if view == question.view:
        return because
    note = f"the view {question.view!r} has no theorem of its own here: this is the wider view {view!r}"
    return (*because, note)


# --- rules

_OWN_SCHEDULE = "who takes part is drawn without a look at the data"


def _compose(section: str, view: View) -> Rule:
    """Every participation is one Gaussian release; they compose exactly."""

    def rule(question: Question) -> Spend:
        times = question.plan.schedule.most(question.steps)
        because = question.certificate.because
        schedule = question.plan.schedule
        if schedule.cap is not None or sampling_of(schedule) == "own":
            because = (*because, f"at most {times} participations, enforced by the run")
        if sampling_of(schedule) == "own":
            because = (*because, _OWN_SCHEDULE)
        return gaussian_spend(question, compose_mu([question.ratio()], times), section, because, view)

    return rule


def _compose_steps(section: str, view: View) -> Rule:
    """Every step is one Gaussian release about everybody, whoever takes part."""

    def rule(question: Question) -> Spend:
        mu = compose_mu([question.ratio()], question.steps)
        own = (_OWN_SCHEDULE,) if sampling_of(question.plan.schedule) == "own" else ()
        return gaussian_spend(question, mu, section, (*question.certificate.because, *own), view)

    return rule


def _last_iterate(section: str, wider: Rule) -> Rule:
    """Only the final model is seen: shifted interpolation, where every condition of it holds."""

    def rule(question: Question) -> Spend:
        plan = question.plan
        if plan.tail_average is not None:
            raise ValueError(
                "view is 'final' and the plan releases a tail average, which the last-iterate bound does not cover. "
                "Ask for view='iterates', under which averages are free, or set tail_average=None."
            )
        obstacle = _obstacle(plan)
        spend = wider(question)
        if spend.basis == "published":
            return spend
        if obstacle:
            return replace(spend, because=(*spend.because, f"no last-iterate bound: {obstacle}"))
        rate = plan.operator.step_lipschitz(plan.largest_relaxation)
        ratio = question.ratio()
        tolerance = plan.operator.tolerance
        if plan.operator.blocks > 1 and tolerance:
            # The certificate has the changed block's own 4 tol in it; here every block drifts by as much.
            moved = max(ratio * plan.noise.std - 4 * tolerance, 0.0)
            ratio = inexact_shift(moved, 1.0, tolerance, plan.operator.blocks) / plan.noise.std
        mu = last_iterate_mu(ratio, float(rate), question.steps)  # type: ignore[arg-type]
        if spend.mu is not None and spend.mu <= mu:
            return spend
        because = (
            *question.certificate.because,
            f"every step is {rate:.6g}-Lipschitz",
            "nothing but the model is seen",
        )
        return gaussian_spend(question, mu, section, because, "final")

    return rule


def _obstacle(plan: Plan) -> str:
    """Which condition of the last-iterate theorem fails; empty if none."""
    rate = plan.operator.step_lipschitz(plan.largest_relaxation)
    if isinstance(plan.relaxation, tuple):
        return "the relaxation is not constant"
    if rate is None:
        missing = plan.certificate.missing
        return missing[-1] if missing else "the step has no Lipschitz constant (declare row_norm with a smooth loss)"
    if rate > 1:
        return f"a step is {rate:.4g}-Lipschitz, above 1; a smaller step_size has one"
    if plan.schedule.cap is not None:
        return "a participation cap stops blocks from moving"
    if plan.operator.blocks > 1 and plan.operator.multiplicity is not None:
        return "items have unequal weights and equal noise"
    return ""


def _poisson(section: str) -> Rule:
    """A secret Poisson sample of bounded messages, summed and noised: the privacy-loss distribution."""

    def rule(question: Question) -> Spend:
        from hushpoint.privacy.subsampling import BASIS, poisson_epsilon, poisson_noise

        plan, schedule, steps = question.plan, question.plan.schedule, question.steps
        if not question.item_level or schedule.cap is not None:
            spend = _compose(section, "iterates")(question)
            why = "the record's user" if schedule.cap is None else "with a cap, every user"
            return replace(
                spend, because=(*spend.because, f"no amplification: who is sampled counts as seen for {why}")
            )
        prob = schedule.prob if isinstance(schedule, PoissonSample) else 1.0
        bound = question.certificate.shift(question.unit, "zero-out", question.item)
        multiplier, adjacency = plan.noise.std / bound, question.adjacency
        because = (*question.certificate.because, f"each item sampled secretly with probability {prob:g}")
        return Spend(
            lambda delta: poisson_epsilon(multiplier, prob, steps, delta, adjacency),
            section,
            _named(question, "iterates", because),
            "iterates",
            basis=BASIS[adjacency],
            calibrated=lambda epsilon, delta: bound * poisson_noise(epsilon, delta, prob, steps, adjacency),
        )

    return rule


def _fixed_size(section: str) -> Rule:
    """A secret sample of fixed size: the privacy-loss distribution of its dominating pair, or no amplification."""

    def rule(question: Question) -> Spend:
        from hushpoint.privacy.subsampling import fixed_size_epsilon, poisson_noise

        spend = _compose(section, "iterates")(question)
        schedule, steps = question.plan.schedule, question.steps
        if not question.item_level or not isinstance(schedule, FixedSample) or schedule.cap is not None:
            return replace(spend, because=(*spend.because, "no amplification: who is sampled counts as seen"))
        # The item that fills an unsampled one's place moves the sum too, so the longest message counts.
        bound = question.certificate.shift(question.unit, "zero-out", None)
        multiplier = question.plan.noise.std / bound
        size, items = schedule.size, schedule.blocks
        because = (*question.certificate.because, f"{size} of {items} items sampled secretly without replacement")
        return Spend(
            lambda delta: min(
                spend.epsilon(delta), fixed_size_epsilon(multiplier, size, items, steps, delta, method="profile")
            ),
            section,
            _named(question, "iterates", because),
            "iterates",
            # A replaced message moves by twice its bound; the search starts from the Poisson sample of that.
            calibrated=lambda epsilon, delta: 2 * bound * poisson_noise(epsilon, delta, size / items, steps),
        )

    return rule


def _walk_network(question: Question) -> Spend:
    """The stateless walk seen by a peer (or several that collude): first return to the user or hit of the peer."""
    from hushpoint.privacy.network import network_spend

    plan = question.plan
    schedule = plan.schedule
    if not isinstance(schedule, Walk) or isinstance(plan.relaxation, tuple):
        return _LOCAL_MESSAGES(question)  # the theorem is for a constant relaxation
    if plan.tail_average is not None:
        raise ValueError(
            "view is 'network' and the plan releases a tail average, which its theorem does not cover. "
            "Ask for view='messages', or set tail_average=None."
        )
    local = _compose("3b", "network")(question)
    tolerance = plan.operator.tolerance
    shift = question.certificate.shift(question.unit, question.adjacency, question.item) - 4 * tolerance
    # A user at its cap only adds noise: such a hop does not contract.
    rate = 1.0 if schedule.cap is not None else plan.operator.step_lipschitz(plan.largest_relaxation) or 1.0
    epsilon = network_spend(
        shift / plan.noise.std,
        4 * tolerance / plan.noise.std,
        rate,
        schedule.most(question.steps),
        schedule.blocks,
        schedule.neighbours,
        question.item,
        question.observers,
        question.steps,
    )
    return Spend(
        lambda delta: min(local.epsilon(delta), epsilon(delta)),
        "4d",
        (*local.because, "the path may be known, the final model is published"),
        "network",
    )


def _published_network(question: Question) -> Spend:
    """Algorithm 4 seen by a peer: the local bound is proved; the paper's amplified one is only published."""
    local = _LOCAL_MESSAGES(question)
    if not question.allow_published:
        return local
    plan = question.plan
    operator = plan.operator
    times = plan.schedule.most(question.steps)

    def rdp(alpha: float) -> float:
        return published.network_rdp(
            alpha=alpha,
            participations=times,
            loss_lipschitz=_published_bound(question),
            gamma=float(getattr(operator, "gamma", math.nan)),
            noise_std=plan.noise.std,
            items=operator.blocks,
        )

    return _published(question, rdp, "erratum 7", "network")


def _published_central(question: Question) -> Spend:
    """The paper's central bounds for the final model of Algorithms 2 and 3, which do not hold as printed."""
    plan, proved = question.plan, _LOCAL_MESSAGES(question)
    if not question.allow_published:
        return proved
    common: dict[str, Any] = {
        "loss_lipschitz": _published_bound(question),
        "gamma": float(getattr(plan.operator, "gamma", math.nan)),
        "noise_std": plan.noise.std,
        "items": plan.operator.blocks,
        "steps": question.steps,
    }
    if plan.method == "federated_admm" and isinstance(plan.schedule, FixedSample):
        common["sample_size"] = plan.schedule.size
        rdp: Callable[..., float] = published.federated_central_rdp
        erratum = "erratum 5"
    elif plan.method == "centralized_admm" and sampling_of(plan.schedule) == "all":
        rdp, erratum = published.centralized_admm_rdp, "erratum 1"
    else:
        return proved
    return _published(question, lambda alpha: rdp(alpha=alpha, **common), erratum, "final")


def _published(question: Question, rdp: Callable[[float], float], section: str, view: View) -> Spend:
    """An RDP formula of the paper, at the orders where its printed conditions hold."""

    def epsilon(delta: float) -> float:
        table = []
        for order in ORDERS:
            try:
                table.append((order, rdp(order)))
            except ValueError:
                continue
        if not table:
            return math.inf
        return rdp_epsilon(([o for o, _ in table], [value for _, value in table]), delta, conversion="paper")

    return Spend(epsilon, section, question.certificate.because, view, basis="published")


def _published_bound(question: Question) -> float:
    facts = question.plan.facts
    if facts is None or facts.missing:
        raise ValueError(" ".join(facts.missing) if facts else "the paper's bounds need the facts of a problem.")
    return facts.gradient_bound


def _exposed(question: Question) -> Spend:
    """Messages leave without noise: whoever sees them sees data."""
    because = ("messages carry no noise of their own, only their sum or the release does",)
    return Spend(lambda delta: math.inf, "4c", because, question.view, mu=math.inf)


# --- the table

_LOCAL_MESSAGES = _compose("3b", "messages")


def _consensus_rules(sampling: str) -> dict[str, Rule]:
    final = _last_iterate("4b", _published_central) if sampling == "all" else _published_central
    rules = {"final": final, "iterates": _LOCAL_MESSAGES, "messages": _LOCAL_MESSAGES}
    return {**rules, "network": _published_network} if sampling == "walk" else rules


def _wider_rules(rule: Rule, final: Rule | None = None) -> dict[str, Rule]:
    return {"final": rule if final is None else final, "iterates": rule, "messages": _exposed}


_ONE_BLOCK = _compose_steps("3a", "iterates")
_FULL_GRADIENT = _compose_steps("3g", "iterates")
_ONE_BLOCK_RULES: dict[str, Rule] = {
    "final": _last_iterate("4b", _ONE_BLOCK),
    "iterates": _ONE_BLOCK,
    "messages": _compose_steps("3a", "messages"),
}

_TABLE: dict[tuple[str, str, str], dict[str, Rule]] = {
    ("one block", "block", "all"): _ONE_BLOCK_RULES,
    **{
        ("consensus", "block", sampling): _consensus_rules(sampling)
        for sampling in ("all", "cyclic", "permuted", "single", "fixed", "poisson", "walk", "own")
    },
    ("summed", "sum", "all"): _wider_rules(_compose("3f", "iterates")),
    ("summed", "sum", "poisson"): _wider_rules(_poisson("3f")),
    ("summed", "sum", "fixed"): _wider_rules(_compose("3f", "iterates")),
    **{
        ("anchored", "release", sampling): _wider_rules(_compose_steps("3e", "iterates"))
        for sampling in ("all", "poisson", "fixed", "own")
    },
    ("gradient", "sum", "all"): _wider_rules(_FULL_GRADIENT, _last_iterate("4b", _FULL_GRADIENT)),
    ("gradient", "sum", "poisson"): _wider_rules(_poisson("3g")),
    ("gradient", "sum", "fixed"): _wider_rules(_fixed_size("3g")),
    ("coordinate", "sum", "single"): _wider_rules(_compose_steps("3g", "iterates")),
    ("stateless", "block", "walk"): {
        "final": _LOCAL_MESSAGES,
        "iterates": _LOCAL_MESSAGES,
        "messages": _LOCAL_MESSAGES,
        "network": _walk_network,
    },
}
