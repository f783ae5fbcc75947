"""What the parties of a federation agree on: the plan, its name, and what it costs each of them."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace

from hushpoint.noise import source_for
from hushpoint.plan import Plan
from hushpoint.privacy.accounting import account
from hushpoint.privacy.gaussian import compose_mu, gdp_epsilon
from hushpoint.privacy.guarantee import Guarantee, Unit, View
from hushpoint.problem import Facts


def require_federated(plan: Plan) -> Facts:
    """The facts of a plan that a server and its sites can run."""
    if plan.facts is None or plan.method is None:
        raise ValueError("plan was not made by a function of hushpoint.methods, so sites cannot agree on it.")
    if plan.schedule.law == "own":
        raise ValueError(f"schedule is a {type(plan.schedule).__name__}. A federation takes schedules of methods only.")
    if not plan.operator.federates or plan.schedule.law not in ("all", "poisson", "fixed"):
        raise ValueError(
            f"plan is of {plan.method}, which is not made of rounds between a server and its sites. "
            "Use federated_admm, anchored_admm, dp_sgd or dp_fedavg."
        )
    if plan.errors is not None:
        raise ValueError("plan has errors=, which sites do not know of. Drop it.")
    return plan.facts


def plan_digest(plan: Plan) -> str:
    """The name of what was agreed on: sites answer no other plan."""
    return hashlib.sha256(json.dumps(plan.to_dict(), sort_keys=True).encode()).hexdigest()[:32]


def trust(plan: Plan) -> str:
    """Whom the sites have to trust."""
    return "nobody" if plan.noise.place == "block" else "the server"


def sample_is_secret(plan: Plan) -> bool:
    """Whether the guarantee counts on nobody knowing who was asked: then participants and bytes are no public facts."""
    return plan.noise.place == "sum" and plan.schedule.law in ("poisson", "fixed")


def participation_mu(plan: Plan, unit: Unit | str, site: int) -> float | None:
    """What one message costs a site's unit (replace-one) where the noise is its own; None where nothing bounds it."""
    if plan.noise.place != "block" or plan.noise.std == 0:
        return None
    try:
        return plan.certificate.shift(unit, "replace-one", site) / plan.noise.std
    except ValueError:
        return None


def default_delta(plan: Plan) -> float:
    """The budget's delta; else one well below one over the number of people."""
    if plan.budget is not None:
        return plan.budget.delta
    facts = plan.public_facts
    rows = 1 if facts is None else facts.rows if facts.knows_rows else facts.items
    return min(1e-5, rows**-1.1) if rows > 1 else 1e-5


def spent(
    plan: Plan, count: int, *, delta: float | None = None, unit: Unit | None = None, site: int | None = None,
    seed: int | None = None,
) -> Guarantee:  # fmt: skip
    """What has been spent after so many participations of a site (local noise) or releases of the server.

    Where the plan has no certificate for the unit, or no noise, epsilon is infinite and says why.
    """
    local = plan.noise.place == "block"
    view: View = "messages" if local else "iterates"
    level = default_delta(plan) if delta is None else delta
    unit = plan.default_unit if unit is None else unit
    steps = 1 if local else max(count, 1)
    try:
        said = account(plan, level, view=view, unit=unit, item=site, steps=steps, source=source_for(seed))
    except ValueError as error:
        missing = (str(error).rstrip("."),)
        return Guarantee(math.inf, level, None, unit, plan.default_adjacency, view, "proved", "1", missing)
    if count == 0:
        return replace(said, epsilon=0.0, mu=0.0, assumptions=("nothing was sent",))
    if not local:
        assumed = ["who takes part does not depend on anyone's data"]
        if sample_is_secret(plan):
            assumed.append("who was asked in which round stays secret, the server's log included")
        return replace(said, assumptions=(*said.assumptions, *assumed))
    if said.mu is None or math.isinf(said.mu):
        return said
    mu = compose_mu([said.mu], count)
    kept = [ground for ground in said.assumptions if "noisy step" not in ground and "participations" not in ground]
    times = f"{count} participations, counted by the site itself"
    return replace(said, epsilon=gdp_epsilon(mu, level), mu=mu, assumptions=(*kept, times), section="9.1")


def planned(plan: Plan) -> int:
    """How many participations of a site (local noise), or releases of the server, the plan comes to."""
    return plan.schedule.most(plan.steps) if trust(plan) == "nobody" else plan.steps


def units(plan: Plan) -> tuple[Unit, ...]:
    """Who is protected: a site as a whole, and one record of it where how many it has is public."""
    facts = plan.public_facts
    if facts is None or facts.unit != "user":
        return ("record",)
    return ("user", "record") if facts.knows_rows else ("user",)
