"""Nobody trusted: an estimator over sites with secure sums, beside the same training with a trusted curator.

python benchmarks/nobody.py --data adult.csv.gz [--seeds 10] [--sites 8] [--rounds 20]

Every federated run goes through all letters of all rounds, inside this process. A pair shares the split and the
number of rounds; the noise of both is drawn anew. What nobody's being trusted costs is the noise of the colluders
(shares of it are for m - c sites, and all n add theirs) and room for failed rounds: both are in the figures. Where all
other sites may collude (c = n - 1) every site hides itself with noise of its own: that is local noise, the last column.
"""

from __future__ import annotations

import argparse
import secrets

import numpy as np
from adult import adult

import hushpoint as hp
from hushpoint.estimators.declared import Declared, finished, rows_of
from hushpoint.estimators.training import train
from hushpoint.federated.secure.covenant import estimator_covenant
from hushpoint.federated.secure.in_process import agreement_of, run_secure
from hushpoint.federated.secure.site import SiteData
from hushpoint.privacy.gaussian import gdp_mu
from hushpoint.problem import Problem

BUDGETS = (0.1, 0.3, 1.0, 3.0)


def estimator(epsilon: float, delta: float) -> hp.PrivateLogisticRegression:
    return hp.PrivateLogisticRegression(epsilon=epsilon, delta=delta, row_norm=1.0, classes=[False, True])


def central(data: dict[str, np.ndarray], epsilon: float, delta: float, rounds: int, seed: int) -> float:
    """Accuracy with a trusted curator, in so many rounds."""
    made = estimator(epsilon, delta)
    declared = Declared.of(made, *data["train"].shape, gdp_mu(epsilon, delta), rounds=rounds)
    targets = made._targets(data["train_labels"])
    problem = Problem(data["train"], targets[0], declared.facts.loss, row_norm=1.0, classes=(-1.0, 1.0))
    trained = train(problem, targets, declared.parameters, delta=delta, fit_intercept=True, seed=seed)
    fitted = finished(made, declared, trained, trained.guarantee, rounds)
    fitted.n_features_in_ = data["train"].shape[1]
    return 100 * float(np.mean(fitted.predict(data["test"]) == data["test_labels"]))


def federated(
    data: dict[str, np.ndarray], epsilon: float, delta: float, rounds: int, sites: int, colluders: int = 1
) -> float:
    """The same with rows at sites of very different sizes, some of which may collude with the server."""
    rows = len(data["train"])
    ends = np.cumsum(np.arange(1, sites + 1)) / np.arange(1, sites + 1).sum() * rows
    parts = np.split(np.arange(rows), np.rint(ends[:-1]).astype(int))
    made = estimator(epsilon, delta)
    agreement, keys = agreement_of(sites, secrets.token_hex(8), colluders=colluders)
    covenant = estimator_covenant(
        agreement, made, data["train"].shape[1], [len(part) for part in parts], hp.Budget(epsilon, delta), rounds=rounds
    )
    declared = covenant.training.declared
    held = [rows_of(made, declared, data["train"][part], data["train_labels"][part], None) for part in parts]
    result = run_secure(covenant, [SiteData(*each) for each in held], keys)
    fitted = finished(made, declared, result.found, result.guarantee, rounds)
    return 100 * float(np.mean(fitted.predict(data["test"]) == data["test_labels"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    data = adult(options.data)
    delta = len(data["train"]) ** -1.1
    print(f"Adult, accuracy in %; {options.sites} sites, {options.rounds} rounds, {options.seeds} pairs, one record.")
    print("| epsilon | curator trusted | nobody trusted | difference | two standard errors | local noise |")
    print("|---|---|---|---|---|---|")
    for epsilon in BUDGETS:
        trusted = np.array([central(data, epsilon, delta, options.rounds, seed) for seed in range(options.seeds)])
        nobody = np.array([federated(data, epsilon, delta, options.rounds, options.sites) for _ in trusted])
        paired = nobody - trusted
        twice = 2 * paired.std(ddof=1) / np.sqrt(len(paired))
        local = [federated(data, epsilon, delta, options.rounds, options.sites, options.sites - 1) for _ in trusted]
        cells = (trusted.mean(), nobody.mean(), paired.mean(), twice, np.mean(local))
        print(f"| {epsilon:g} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
