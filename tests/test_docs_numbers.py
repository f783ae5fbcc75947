"""Numbers in the pages that follow from public facts alone are those computed now.

Numbers of the studies are compared in test_results.py; those that need a data file name the command that prints them.
"""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
from documents import ROOT, examples, run
from oracles import printed as published
from scipy import integrate, stats
from scipy.special import gammaln, logsumexp

import hushpoint as hp
from hushpoint.privacy import gdp_mu
from hushpoint.privacy.selection import best_distribution, run_count, selection_mu


def page(name: str) -> str:
    return (ROOT / name).read_text()


def told(text: str, sentence: str) -> bool:
    """Whether a page says something, however its lines are broken."""
    return " ".join(sentence.split()) in " ".join(text.split())


def test_the_steps_of_the_adult_table():
    # a table kept while the planner changed; n and p of the official split, delta as in benchmarks/accuracy.py
    table = re.findall(r"^\| (zero-out|replace-one) \|.*\| ([\d, ]+) \| [\d.]+ \|$", page("README.md"), re.M)
    assert len(table) == 2
    for adjacency, steps in table:
        plans = [
            hp.utility.plan_parameters(32_561, 108, hp.Budget(epsilon, 32_561**-1.1, adjacency=adjacency))
            for epsilon in (0.1, 0.3, 1.0, 3.0)
        ]
        # the released moments may ask for more
        assert all(plan.steps <= int(told) <= 200 for told, plan in zip(steps.split(", "), plans, strict=True))


def test_the_table_of_selection_is_what_its_example_prints():
    # a law, a bound or a rounding that changed under the table
    text = page("docs/selection.md")
    printed = run(next(example for example in examples(text) if "DISTRIBUTIONS" in example.code), "docs/selection.md")
    assert printed.splitlines() == re.findall(r"^\| \d+ \| (?:geom|log|poisson).*$", text, re.M)


def test_what_is_said_of_ten_candidates():
    # three sentences about the price of a search
    mu, law = gdp_mu(1.0, 1e-6), best_distribution(1.0, 1e-6, 10)
    share = selection_mu(1.0, 1e-6, 10, law) / mu
    assert told(page("docs/estimators.md"), "With 10 candidates on average each run gets about 70% of the mu")
    assert 0.65 < share < 0.75
    assert told(page("docs/selection.md"), "ten runs on average each needs less than 40% more noise")
    assert 1.3 < 1 / share < 1.4
    assert told(page("docs/selection.md"), "logarithmic law of mean 10 makes more than 50 runs in about 3% of all fits")
    assert 0.025 < stats.logser(1 - run_count(10, "logarithmic").parameter).sf(50) < 0.035


def test_the_rounds_that_the_readme_quotes():
    # the sentence on rounds in a federation, against the table of the study
    with open(ROOT / "docs/study/communication/tables/communication.csv", newline="") as file:
        rows = list(csv.DictReader(file))

    def fewest(label: str) -> list[str]:
        wanted = [[r for r in rows if r["label"] == label and float(r["epsilon"]) == e] for e in (10, 3, 1)]
        return [min((r["rounds"] for r in own if r["rounds"]), key=int, default="never") for own in wanted]

    anchored, gradient, average = (
        "{}, {} and {}".format(*fewest(label)) for label in ("anchored ADMM", "DP-FedSGD", "DP-FedAvg")
    )
    assert told(page("README.md"), f"anchored ADMM needs {anchored} rounds, DP-FedSGD {gradient} (fewer bytes")
    assert told(page("README.md"), f"DP-FedAvg {average} ([docs/study.md]")


def erratum(number: int) -> str:
    return re.search(rf"^## Erratum {number}\..*?(?=^## )", page("docs/errata.md"), re.M | re.S)[0]


def rows_of(text: str) -> list[list[str]]:
    return [line.strip("|").replace(" ", "").split("|") for line in re.findall(r"^\| \d.*$", text, re.M)]


def test_the_table_of_erratum_1():
    # a counterexample whose numbers were typed wrongly would itself need an erratum
    table = rows_of(erratum(1))
    assert len(table) == 3
    for items, steps, exact, printed, ratio in table:
        n, k = int(items), int(steps)
        assert float(exact) == pytest.approx(3 / 2 * 16 * k / (n * 4))  # alpha mu^2/2
        bound = published.centralized_admm_rdp(alpha=3.0, steps=k, loss_lipschitz=1, gamma=1, noise_std=2, items=n)
        assert float(printed) == pytest.approx(bound)
        assert float(ratio) == n


def test_the_table_of_erratum_5():
    # numbers of the integration that no longer belong to the example in the text
    table = rows_of(erratum(5))
    assert len(table) == 3
    for items, size, exact, printed, ratio in table:
        n, m = int(items), int(size)
        truth = _order_two(m / n, std=0.5 * 5 * m**0.5)
        bound = published.federated_central_rdp(
            alpha=2.0, steps=1, loss_lipschitz=1, gamma=1, noise_std=5, items=n, sample_size=m
        )
        assert float(exact) == pytest.approx(truth, rel=2e-4)
        assert float(printed) == pytest.approx(bound)
        assert float(ratio) == pytest.approx(truth / bound, rel=2e-3)


def _order_two(q: float, std: float) -> float:
    """Renyi divergence of order 2 between (1-q) N(0) + q N(-1) and (1-q) N(0) + q N(1), all of one deviation."""

    def density(x: float, mean: float) -> float:
        return float((1 - q) * stats.norm.pdf(x, 0, std) + q * stats.norm.pdf(x, mean, std))

    excess = integrate.quad(
        lambda x: (density(x, -1) - density(x, 1)) ** 2 / density(x, 1), -12 * std, 12 * std, epsabs=1e-12, limit=500
    )[0]
    return float(np.log1p(excess))


def test_the_numbers_of_erratum_6():
    # a ceiling, a divergence or a ratio of another example than the one described
    text, q, alpha = erratum(6), 3.7e-4, 260
    limit = published.subsampling_alpha_limit(alpha=alpha, sampling_prob=q, noise_std=4.0)
    printed = published.subsampled_gaussian_rdp(alpha=alpha, sampling_prob=q, noise_std=4.0)
    exact = _sampled(alpha, q, std=4.0)
    assert told(text, f"The printed ceiling on alpha is {limit:.1f}.")
    assert told(text, f"The exact divergence is {exact:.4f}, the printed bound {printed:.3e}:".replace("e-06", "e-6"))
    assert told(text, f"{exact / printed:,.0f} times too small")
    other = published.subsampled_gaussian_rdp(alpha=2, sampling_prob=0.1, noise_std=4.0, sensitivity=40.0)
    assert told(text, f"The exact divergence is {_sampled(2, 0.1, std=0.1):.1f}, the printed bound {other:g}.")
    missing = np.log1p(1 / (q * (alpha - 1))) * 4**2 / 2 - np.log(4**2)
    assert told(text, f"is missing ({missing:.1f} in example (a))")


def _sampled(alpha: int, q: float, std: float) -> float:
    """Renyi divergence of the Poisson-sampled Gaussian from the plain one, by its binomial sum."""
    k = np.arange(alpha + 1)
    choose = gammaln(alpha + 1) - gammaln(k + 1) - gammaln(alpha - k + 1)
    terms = choose + (alpha - k) * np.log1p(-q) + k * np.log(q) + k * (k - 1) / (2 * std**2)
    return float(logsumexp(terms)) / (alpha - 1)


def test_the_numbers_of_errata_7_and_8():
    # the same, for the walk of two users, the proof's learning rate and the expanding block
    hidden = 21 / 2**20
    exact = np.log(hidden + (1 - hidden) * np.exp(0.16))
    printed = published.network_rdp(alpha=2, participations=1, loss_lipschitz=1, gamma=1, noise_std=10, items=2)
    assert told(erratum(7), f"= {exact:.4f}` (21 of the `2^20` paths show nothing); printed {printed:.4f}.")
    assert told(erratum(7), f"{exact / printed:.3f} times too small")
    rates = [
        published.proof_relaxation(contraction=tau, block_prob=1.0, dimension=10, noise_std=1.0)
        for tau in (0.9, 0.5, 0.1)
    ]
    assert told(erratum(8), "the proof's `lambda` is {:.3g}, {:.3g} and {:.3g} at `tau`".format(*rates))
    norm = np.linalg.norm([[0.5, 0.5], [0.0, 1.0]], 2)
    assert told(erratum(8), f"has norm {norm:.4f}")
