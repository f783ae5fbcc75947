"""The paper's central and network bounds as answers of the accountant, for those who ask for them by name."""

from __future__ import annotations

import math
from collections.abc import Callable

from hushpoint.privacy import published
from hushpoint.privacy.accounting import Question, Spend
from hushpoint.privacy.gaussian import ORDERS, rdp_epsilon

# Which printed bound speaks of whom: by the view, who watches, and the law of the schedule; and its erratum.
_PRINTED: dict[tuple[str, str, str], tuple[Callable[..., float], str]] = {
    ("final", "curator", "all"): (published.centralized_admm_rdp, "erratum 1"),
    ("final", "server", "fixed"): (published.federated_central_rdp, "erratum 5"),
    ("network", "peers", "walk"): (published.network_rdp, "erratum 7"),
}


def printed_spend(question: Question) -> Spend | None:
    """What the paper claims, though it does not hold as printed; None where it claims nothing."""
    plan, view = question.plan, question.view
    letters = plan.operator.printed_letters()
    found = _PRINTED.get((view, plan.operator.watcher, plan.schedule.law))
    if letters is None or found is None or plan.tail_average is not None:
        return None
    bound, erratum = found
    if not math.isfinite(letters["loss_lipschitz"]):
        raise ValueError(" ".join(() if plan.facts is None else plan.facts.missing))
    counted = {
        ("final", "all"): {"steps": question.steps},
        ("final", "fixed"): {"steps": question.steps, "sample_size": plan.schedule.most_at_once},
        ("network", "walk"): {"participations": plan.schedule.most(question.steps)},
    }[view, plan.schedule.law]
    common = {**letters, **counted, "noise_std": plan.noise.std}

    def epsilon(delta: float) -> float:
        """At the orders where the printed conditions hold."""
        table = {}
        for order in ORDERS:
            try:
                table[order] = bound(alpha=order, **common)
            except ValueError:
                continue
        return rdp_epsilon((list(table), list(table.values())), delta, conversion="paper") if table else math.inf

    return Spend(epsilon, erratum, question.certificate.because, view, basis="published")
