"""The sentence a user quotes: its words, its rounding, its arithmetic."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hushpoint as hp
from hushpoint import Budget, Guarantee, Problem, methods, regularizers
from hushpoint.privacy import compose, gdp_epsilon, gdp_mu

LINE = re.compile(r"epsilon = (?P<epsilon>\S+) at delta = (?P<delta>\S+) for one")


def claim(**changes: Any) -> Guarantee:
    """A guarantee as the accountant makes them."""
    plain = Guarantee(1.0, 1e-5, 0.25, "record", "replace-one", "iterates", "proved", "3a", ("rows are short",))
    return dataclasses.replace(plain, **changes)


def gaussian(mu: float, **changes: Any) -> Guarantee:
    return claim(mu=mu, epsilon=gdp_epsilon(mu, changes.get("delta", 1e-5)), **changes)


# --- words


def test_a_guarantee_is_one_paragraph_with_all_the_facts() -> None:
    # Catches: an epsilon without delta, unit, adjacency, viewer, proof or assumptions, which nobody can check.
    problem = Problem.declared(1000, 3, "squared", row_norm=1.0, clip=0.5)
    plan = methods.private_admm(problem, 20, 10.0, budget=Budget(1.0, 1e-5), tolerance=1e-9)
    assert str(plan.guarantee(1e-5)) == (
        "epsilon = 1 at delta = 1e-05 for one record (replace-one), against anyone who sees every iterate and the "
        "final model. Proved (docs/privacy.md, section 3a). Rests on: rows scaled to norm <= 1, gradients clipped at "
        "0.5, proxes are solved to 1e-09, 20 noisy steps. Holds for real numbers; floating-point ones stand for them "
        "(section 5)."
    )


def test_the_floating_point_caveat_stands_where_there_is_noise() -> None:
    # Catches: a statement that reads as if it held for the last bits of the numbers that a run releases.
    for stated in (
        claim(),
        claim(mu=None),
        gaussian(0.3),
        compose(gaussian(0.3), claim(mu=None)),
        claim(assumptions=()),
        claim(epsilon=0.0, mu=1e-9),
    ):
        assert str(stated).endswith("Holds for real numbers; floating-point ones stand for them (section 5).")
        assert stated.to_dict()["statement"] == str(stated)
    for basis in ("published", "stated"):
        said = str(claim(basis=basis))
        assert said.endswith("Meant for real numbers; floating-point ones stand for them (section 5).")
    for stated in (claim(epsilon=math.inf), claim(epsilon=0.0, mu=0.0)):
        assert "floating-point" not in str(stated)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("final", "only the final model"),
        ("iterates", "every iterate and the final model"),
        ("messages", "untrusted server"),
        ("network", "other peer"),
    ],
)
def test_every_viewer_is_named(view: Any, words: str) -> None:
    # Catches: a view whose name means nothing to a lawyer.
    text = str(claim(view=view, unit="user", adjacency="zero-out"))
    assert words in text
    assert "one user (zero-out)" in text
    assert "\n" not in text


def test_no_guarantee_says_so() -> None:
    # Catches: "epsilon = inf ... Proved".
    text = str(claim(epsilon=math.inf, mu=None, assumptions=("there is no noise",)))
    assert text.startswith("No guarantee (epsilon = infinity) for one record")
    assert "there is no noise" in text
    assert "Proved" not in text


def test_published_bounds_carry_their_warning() -> None:
    # Catches: a bound known to fail that reads like a proved one.
    text = str(claim(basis="published", section="erratum 1"))
    assert "Published, not proved and known to fail" in text
    assert "docs/errata.md, erratum 1" in text
    assert "Proved (" not in text


# --- rounding


@given(st.floats(1e-12, 1e6))
def test_printed_epsilon_is_never_below_the_true_one(epsilon: float) -> None:
    # Catches: rounding to nearest, which promises more than was proved half of the time.
    printed = float(LINE.match(str(claim(epsilon=epsilon)))["epsilon"])  # type: ignore[index]
    assert epsilon <= printed <= epsilon * 1.002


@pytest.mark.parametrize("base", [1.0, 0.3, 1.001, 0.01, 9.999, 12.34, 50.0])
def test_printed_epsilon_at_round_numbers(base: float) -> None:
    # Catches: 1.001 printed for a budget of exactly 1, and 1 for anything above it.
    assert float(LINE.match(str(claim(epsilon=base)))["epsilon"]) == base  # type: ignore[index]
    above = math.nextafter(base, math.inf)
    assert float(LINE.match(str(claim(epsilon=above)))["epsilon"]) >= above  # type: ignore[index]


@pytest.mark.parametrize("delta", [100**-1.1, 1000**-1.1, 1e-5, 1.23456789e-7, 1 / 3, 2.0**-30])
def test_printed_delta_is_never_below_the_true_one(delta: float) -> None:
    # Catches: the same epsilon quoted at a smaller delta than was proved; the default delta n^-1.1 is never round.
    printed = float(LINE.match(str(claim(delta=delta)))["delta"])  # type: ignore[index]
    assert delta <= printed <= delta * 1.001


def test_nothing_spent_prints_zero() -> None:
    # Catches: the logarithm of 0.
    assert str(claim(epsilon=0.0, mu=0.0)).startswith("epsilon = 0 at")


# --- data


def test_to_dict_is_plain_json() -> None:
    # Catches: Infinity in JSON, which most readers refuse; or a field that was left out.
    for one in (claim(), claim(epsilon=math.inf, mu=math.inf), claim(epsilon=math.inf, mu=None)):
        record = one.to_dict()
        text = json.dumps(record, allow_nan=False)
        again = json.loads(text)
        assert set(again) == {field.name for field in dataclasses.fields(Guarantee)} | {"statement"}
        assert again["statement"] == str(one)
        assert again["assumptions"] == ["rows are short"]
        assert float(again["epsilon"]) == one.epsilon
    assert json.loads(json.dumps(Budget(1.0, 1e-5, view="final").to_dict())) == {
        "epsilon": 1.0,
        "delta": 1e-5,
        "view": "final",
        "adjacency": None,
        "unit": None,
    }


def test_guarantees_are_values() -> None:
    # Catches: a guarantee edited after the fact.
    one = claim()
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.epsilon = 0.1  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Budget(1.0, 1e-5).epsilon = 2.0  # type: ignore[misc]
    assert isinstance(one.assumptions, tuple)
    assert one == claim()
    assert hash(one) == hash(claim())
    assert pickle.loads(pickle.dumps(one)) == one


# --- composition


@given(st.lists(st.just(0.0) | st.floats(1e-9, 5), min_size=1, max_size=6))
def test_gaussian_guarantees_compose_exactly(mus: list[float]) -> None:
    # Catches: epsilons added where Gaussian losses are known, or squares left out.
    total = compose(*[gaussian(mu) for mu in mus])
    expected = math.sqrt(sum(mu**2 for mu in mus))
    assert total.mu == pytest.approx(expected, rel=1e-12)
    assert total.mu is not None
    assert total.mu >= expected * (1 - 1e-15)
    assert total.epsilon == gdp_epsilon(total.mu, 1e-5)
    assert total.delta == 1e-5


def test_composition_of_other_guarantees_adds() -> None:
    # Catches: a mu invented for a bound that has none; a delta used for two releases.
    sampled = claim(mu=None, epsilon=0.5, delta=1e-6)
    total = compose(sampled, sampled, gaussian(0.3), gaussian(0.4, delta=2e-5))
    assert total.mu is None
    assert total.delta == pytest.approx(2e-6 + 2e-5)
    assert total.epsilon == pytest.approx(1.0 + gdp_epsilon(0.5, 2e-5), rel=1e-12)
    assert compose(sampled, sampled).epsilon == 1.0
    tenths = compose(*[claim(mu=None, epsilon=0.1, delta=1e-7) for _ in range(7)])
    assert Fraction(tenths.epsilon) >= 7 * Fraction(0.1)  # 0.1 + ... + 0.1 is rounded down by plain addition
    assert Fraction(tenths.delta) >= 7 * Fraction(1e-7)
    assert tenths.epsilon <= 0.7 * (1 + 1e-15)
    assert compose(claim(mu=None, epsilon=math.inf), gaussian(0.3)).epsilon == math.inf
    assert compose(gaussian(math.inf), gaussian(0.3)).epsilon == math.inf


def test_composition_takes_the_narrowest_view_and_the_weakest_basis() -> None:
    # Catches: a claim about the final model alone that is read as one about everything sent on the way.
    total = compose(gaussian(0.3, view="final"), gaussian(0.3, view="messages"), gaussian(0.1))
    assert (total.view, total.basis) == ("final", "proved")
    assert compose(gaussian(0.3, view="iterates"), gaussian(0.3, view="messages")).view == "iterates"
    assert compose(gaussian(0.3), claim(basis="published", mu=None, section="erratum 1")).basis == "published"
    assert compose(claim(view="network", mu=None), claim(view="network", mu=None)).view == "network"
    assert "3 releases" in str(total)
    assert str(total).count("rows are short") == 1


def test_composition_refuses_what_does_not_add_up() -> None:
    # Catches: a record's guarantee added to a user's, or zero-out to replace-one (which is not half of it in general).
    with pytest.raises(ValueError, match="no guarantee"):
        compose()
    with pytest.raises(ValueError, match=r"one record .* one user"):
        compose(gaussian(0.1), gaussian(0.1, unit="user"))
    with pytest.raises(ValueError, match="zero-out"):
        compose(gaussian(0.1), gaussian(0.1, adjacency="zero-out"))
    with pytest.raises(ValueError, match="network"):
        compose(gaussian(0.1), claim(view="network", mu=None))


# --- budgets


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -1e-5}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"delta": None}, "delta"),
        ({"view": "everything"}, "view"),
        ({"adjacency": "add-one"}, "adjacency"),
        ({"unit": "household"}, "unit"),
    ],
)
def test_bad_budgets_name_what_is_wrong(arguments: dict[str, Any], name: str) -> None:
    # Catches: delta = 0 or a misspelt view accepted, and found out after the run.
    with pytest.raises(ValueError, match=name):
        Budget(**{"epsilon": 1.0, "delta": 1e-5, **arguments})


def test_public_names() -> None:
    # Catches: a name that users rely on moved away.
    for name in ("gdp_epsilon", "gdp_delta", "gdp_mu", "compose", "exact_mu", "audit", "account", "rounds_affordable"):
        assert callable(getattr(hp.privacy, name))
        assert name in dir(hp.privacy)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        hp.privacy.nonsense  # noqa: B018


@pytest.mark.parametrize("view", ["final", "iterates"])
def test_a_callback_is_a_reader_of_every_model(view: Any) -> None:
    # Catches: a final-view guarantee of a run whose callback was given every iterate, as if nobody had seen them.
    rng = np.random.default_rng(0)
    problem = Problem(rng.normal(size=(30, 2)), rng.normal(size=30), "huber", regularizers.L2(1.0), row_norm=1.0)
    plan = methods.private_admm(problem, 3, 1.0, budget=Budget(1.0, 1e-6, view=view))
    told = "the callback, which was given every model, kept silent"
    silent, watched = (plan.run(seed=0, callback=c).guarantee for c in (None, lambda step, model: None))
    assert silent is not None
    assert watched is not None
    assert told not in silent.assumptions
    assert (told in watched.assumptions) is (view == "final")
    assert watched.epsilon == silent.epsilon


@pytest.mark.parametrize("epsilon", [1e13, 1e100, 1e300])
def test_an_epsilon_beyond_conversion_is_refused_or_rounded_down(epsilon: float) -> None:
    # Catches: "math range error", or a negative mu, from an epsilon whose square overflows.
    with pytest.raises(ValueError, match="which protects nobody"):
        Budget(epsilon, 1e-6)
    with pytest.raises(ValueError, match="which protects nobody"):
        hp.PrivateLogisticRegression(epsilon, 1e-6, 1.0).fit(np.eye(4), [0, 1, 0, 1])
    assert 0 < gdp_mu(epsilon, 1e-6) == gdp_mu(1e12, 1e-6)
    assert gdp_epsilon(gdp_mu(epsilon, 1e-6), 1e-6) <= 1e12


@pytest.mark.parametrize("delta", [0.5, 0.75, 1.0])
def test_a_delta_of_a_half_is_refused(delta: float) -> None:
    # Catches: a guarantee that publishing one of two people at random would satisfy.
    with pytest.raises(ValueError, match="well below one over the number of people"):
        Budget(1.0, delta)
    with pytest.raises(ValueError, match="well below one over the number of people"):
        hp.PrivateLinearRegression(1.0, delta, 1.0, (0, 1)).fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="well below one over the number of people"):
        methods.dp_sgd(Problem.declared(9, 2, "huber", row_norm=1.0), 2, 0.1, noise_std=1.0).guarantee(delta)
