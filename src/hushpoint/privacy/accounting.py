"""What a viewer learns from a plan: a rule for where its noise is, and for what its operator's certificate states.

A rule answers with a ``Spend``. Where there is none it is an error, never a guess; a narrower view without a theorem of
its own gets the guarantee of the wider view, named as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from hushpoint._checks import require, require_choice, require_count, require_kind, shown
from hushpoint._described import is_ours
from hushpoint.certificates import ADJACENCIES, UNITS, Certificate, Theorem
from hushpoint.labels import READ_FROM_LABELS
from hushpoint.noise import Source
from hushpoint.operators.base import LOSS_IS_ZERO, Operator
from hushpoint.privacy.gaussian import compose_mu, gdp_epsilon
from hushpoint.privacy.guarantee import VIEWS, Adjacency, Arithmetic, Basis, Guarantee, Unit, View, checked_delta
from hushpoint.privacy.last_iterate import inexact_shift, last_iterate_mu

if TYPE_CHECKING:
    from hushpoint.plan import Plan
    from hushpoint.schedules import Walk


@runtime_checkable
class Accountable(Protocol):
    """What a plan is known by here, below the room where plans are made."""

    operator: Any
    schedule: Any
    noise: Any
    steps: Any


def require_plan(name: str, plan: Any, remedy: str = "Pass a plan of hushpoint.methods.") -> None:
    """An error where something else than a plan was given."""
    require(isinstance(plan, Accountable), name, plan, remedy)


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

    @cached_property
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
        "arithmetic": _arithmetic(plan),
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
    if plan.problem is not None and plan.problem.word_of_store is not None:
        meaning = (*meaning, plan.problem.word_of_store)
    counted = "1 noisy step" if question.steps == 1 else f"{question.steps} noisy steps"
    because = (*spend.because, *meaning, *_own_word(plan.operator), counted)
    return Guarantee(
        spend.epsilon(delta),
        mu=spend.mu,
        view=spend.view,
        basis=spend.basis,
        section=spend.section,
        assumptions=because,
        **stated,
    )


def _arithmetic(plan: Plan) -> Arithmetic:
    """Whether a statement is about the program: messages of operators from outside may be summed in any way."""
    return "whole" if plan.noise.unit is not None and is_ours(type(plan.operator)) else "real"


def _own_word(operator: Operator) -> tuple[str, ...]:
    """Whose word an operator from outside is taken at."""
    kind = type(operator)
    if is_ours(kind):
        return ()
    rule = " and the accounting rule registered for it" if kind in _OWN_RULES else ""
    return (f"the certificate that {kind.__name__} states of itself{rule}",)


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
    """The spend of the rule that answers a question."""
    plan = question.plan
    if plan.errors is not None:
        raise ValueError("errors is given and may carry data, so there is no guarantee. Drop errors= to get one.")
    rules = _rules_for(question)
    if question.view not in rules:
        raise ValueError(
            f"view is {question.view!r}, and nobody has that view of {plan.method or plan.operator.name}. "
            f"Choose one of: {', '.join(map(repr, rules))}."
        )
    if not is_ours(type(plan.noise)):
        raise ValueError(f"noise is a {type(plan.noise).__name__}, of whose law nothing is known. Use hp.noise.Noise.")
    spend = rules[question.view](question)
    if type(plan.operator) in _OWN_RULES:
        require_kind("what the registered rule gives", spend, Spend, remedy="Let it return a Spend: gaussian_spend().")
        return replace(spend, basis="stated")
    if question.allow_published:
        from hushpoint.privacy.printed import printed_spend

        return printed_spend(question) or spend
    return spend


def gaussian_spend(question: Question, mu: float, section: str, because: str | tuple[str, ...], view: View) -> Spend:
    """A Gaussian loss, with a note where the view is wider than the one asked for."""
    because = (because,) if isinstance(because, str) else because
    return Spend(lambda delta: gdp_epsilon(mu, delta), section, _named(question, view, because), view, mu)


def _named(question: Question, view: View, because: tuple[str, ...]) -> tuple[str, ...]:
    if view == question.view:
        return because
    note = f"the view {question.view!r} has no theorem of its own here: this is the wider view {view!r}"
    missing = question.plan.certificate.missing
    if question.view == "final" and question.plan.operator.unit is not None and missing:
        note += f" ({missing[-1]})"
    return (*because, note)


# --- rules

_OWN_SCHEDULE = "who takes part is drawn without a look at the data"


def _compose(view: View, counts: str | None = None) -> Rule:
    """Every participation, or every step, is one Gaussian release; they compose exactly."""

    def rule(question: Question) -> Spend:
        theorem, schedule = question.certificate.theorem, question.plan.schedule
        own, because = schedule.law == "own", question.certificate.because
        times = question.steps
        if (counts or theorem.counts) == "participations":
            times = schedule.most(times)
            if schedule.cap is not None or own:
                because = (*because, f"at most {times} participations, enforced by the run")
        if own:
            because = (*because, _OWN_SCHEDULE)
        return gaussian_spend(question, compose_mu([question.ratio()], times), theorem.section, because, view)

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


def _poisson(question: Question) -> Spend:
    """A secret Poisson sample of bounded messages, summed and noised: the privacy-loss distribution."""
    from hushpoint.privacy.subsampling import poisson_epsilon, poisson_noise

    plan, schedule, steps = question.plan, question.plan.schedule, question.steps
    if not question.item_level or schedule.cap is not None:
        spend = _compose("iterates", "participations")(question)
        why = "the record's user" if schedule.cap is None else "with a cap, every user"
        return replace(spend, because=(*spend.because, f"no amplification: who is sampled counts as seen for {why}"))
    prob = schedule.chance
    bound = question.certificate.shift(question.unit, "zero-out", question.item)
    multiplier, adjacency = plan.noise.std / bound, question.adjacency
    because = (*question.certificate.because, f"each item sampled secretly with probability {prob:g}")
    return Spend(
        lambda delta: poisson_epsilon(multiplier, prob, steps, delta, adjacency),
        question.certificate.theorem.section,
        _named(question, "iterates", because),
        "iterates",
        calibrated=lambda epsilon, delta: bound * poisson_noise(epsilon, delta, prob, steps, adjacency),
    )


def _fixed_size(question: Question) -> Spend:
    """A secret sample of fixed size: the privacy-loss distribution of its dominating pair, or no amplification."""
    from hushpoint.privacy.subsampling import fixed_size_epsilon, poisson_noise

    spend = _compose("iterates", "participations")(question)
    schedule, steps = question.plan.schedule, question.steps
    if not question.item_level or schedule.cap is not None:
        return replace(spend, because=(*spend.because, "no amplification: who is sampled counts as seen"))
    # The item that fills an unsampled one's place moves the sum too, so the longest message counts.
    bound = question.certificate.shift(question.unit, "zero-out", None)
    multiplier = question.plan.noise.std / bound
    size, items = schedule.most_at_once, schedule.blocks
    because = (*question.certificate.because, f"{size} of {items} items sampled secretly without replacement")
    return Spend(
        lambda delta: min(
            spend.epsilon(delta), fixed_size_epsilon(multiplier, size, items, steps, delta, method="profile")
        ),
        question.certificate.theorem.section,
        _named(question, "iterates", because),
        "iterates",
        # A replaced message moves by twice its bound; the search starts from the Poisson sample of that.
        calibrated=lambda epsilon, delta: 2 * bound * poisson_noise(epsilon, delta, size / items, steps),
    )


def _walk_network(question: Question) -> Spend:
    """The stateless walk seen by a peer (or several that collude): first return to the user or hit of the peer."""
    from hushpoint.privacy.network import network_spend

    plan = question.plan
    schedule = cast("Walk", plan.schedule)
    if isinstance(plan.relaxation, tuple):
        return _compose("messages")(question)  # the theorem is for a constant relaxation
    if plan.tail_average is not None:
        raise ValueError(
            "view is 'network' and the plan releases a tail average, which its theorem does not cover. "
            "Ask for view='messages', or set tail_average=None."
        )
    local = _compose("network")(question)
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


def _exposed(question: Question) -> Spend:
    """Messages leave without noise: whoever sees them sees data."""
    because = ("messages carry no noise of their own, only their sum or the release does",)
    return Spend(lambda delta: math.inf, "4c", because, question.view, mu=math.inf)


# --- which rule answers: by where the noise is, and by what the certificate states of the release


def _noisy_blocks(theorem: Theorem, law: str, blocks: int) -> dict[str, Rule]:
    if blocks == 1 and law == "all":  # the message is the step itself
        each = _compose("iterates")
        return {"final": _last_iterate("4b", each), "iterates": each, "messages": _compose("messages")}
    local = _compose("messages")
    rules = {"final": _last_iterate("4b", local) if law == "all" else local, "iterates": local, "messages": local}
    return {**rules, "network": _walk_network if theorem.walks else local} if law == "walk" else rules


def _noisy_sum(theorem: Theorem, law: str, blocks: int) -> dict[str, Rule]:
    rule = {"poisson": _poisson, "fixed": _fixed_size}[law] if law in theorem.amplified_by else _compose("iterates")
    final = _last_iterate("4b", rule) if law == "all" and theorem.forgets else rule
    return {"final": final, "iterates": rule, "messages": _exposed}


def _noisy_release(theorem: Theorem, law: str, blocks: int) -> dict[str, Rule]:
    rule = _compose("iterates")
    return {"final": rule, "iterates": rule, "messages": _exposed}


_PLACES: dict[str, Callable[[Theorem, str, int], dict[str, Rule]]] = {
    "block": _noisy_blocks,
    "sum": _noisy_sum,
    "release": _noisy_release,
}

_OWN_RULES: dict[type[Operator], dict[str, Rule]] = {}


def register_rule(operator: type[Operator], rule: Rule, *views: View) -> None:
    """Account plans with an operator of your own by a rule of your own, for viewers whom the theorem is about.

    The rule is asked in place of composition, for this very class and not for those that derive from it. It takes a
    ``Question`` (the plan, who is protected, how many steps) and answers with a ``Spend``; ``gaussian_spend`` makes one
    from a mu. What it claims is on you: the guarantee is called "stated", not "proved", and says whose rule it is.

    Parameters
    ----------
    operator : type
        The class of the operator.
    rule : callable
        ``rule(question) -> Spend``, or an error that names what is missing.
    views : {"final", "iterates", "messages", "network"}
        Who sees what the rule is about. Who sees the final model only is told what holds for the narrowest of these;
        other views are refused.
    """
    if not isinstance(operator, type) or not issubclass(operator, Operator):
        raise ValueError(f"operator is {shown(operator)}. Pass the class of your operator.")
    if is_ours(operator):
        raise ValueError(f"operator is {operator.__name__}, whose rules are proved. Derive a class of your own.")
    for view in views or ("",):
        require_choice("views", view, VIEWS)
    _OWN_RULES[operator] = {**_OWN_RULES.get(operator, {}), **dict.fromkeys(views, rule)}


def _rules_for(question: Question) -> dict[str, Rule]:
    plan, theorem = question.plan, question.certificate.theorem
    operator, law = plan.operator, plan.schedule.law
    own = _OWN_RULES.get(type(operator))
    if own is not None:  # who sees less is told what holds for who sees more
        wider = [own[view] for view in ("messages", "iterates", "final") if view in own]
        return {"final": wider[-1], **own} if wider else own
    if law not in theorem.laws or plan.noise.place != theorem.place:
        raise ValueError(
            f"there is no privacy theorem for the {operator.name} operator with noise on the {plan.noise.place} and "
            f"the schedule {law!r}: its certificate speaks of noise on the {theorem.place} and schedules of "
            f"{', '.join(map(repr, theorem.laws))}. Use a combination that hushpoint.methods builds."
        )
    return _PLACES[theorem.place](theorem, law, operator.blocks)
