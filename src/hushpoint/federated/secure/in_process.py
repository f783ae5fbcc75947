"""A federation with secure sums inside one process: the same server and sites, and nothing between them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from hushpoint.estimators.base import PrivateLinear
from hushpoint.estimators.declared import finished, rows_of
from hushpoint.estimators.training import Found
from hushpoint.federated.in_process import site_store
from hushpoint.federated.secure.covenant import ROUNDS, SPARE, Covenant, estimator_covenant
from hushpoint.federated.secure.record import SecureServerStore
from hushpoint.federated.secure.run import run_to_end
from hushpoint.federated.secure.server import SecureServer
from hushpoint.federated.secure.site import SecureSite, SiteData
from hushpoint.federated.secure.store import InMemory, SecureStore
from hushpoint.federated.secure.trainings import EstimatorTraining
from hushpoint.federated.server import RoundRecord
from hushpoint.noise import source_for
from hushpoint.privacy.guarantee import Budget, Guarantee, Unit
from hushpoint.secure.agreement import Agreement, Roster
from hushpoint.secure.primitives import signing_public

Part = tuple[Any, NDArray[Any], NDArray[Any] | None]
"""X, y and, where users are protected, whose row each is."""


@dataclass(frozen=True)
class SecureResult:
    """What a federation found, what it cost, and the log of its rounds."""

    found: Found | None
    guarantee: Guarantee
    rounds: list[RoundRecord]
    server: SecureServer
    sites: list[SecureSite]


def agreement_of(
    count: int, run: str, *, survivors: int | None = None, colluders: int = 1
) -> tuple[Agreement, list[bytes]]:
    """An agreement among sites of one process, and their private keys."""
    keys = [os.urandom(32) for _ in range(count)]
    roster = Roster(tuple((f"site {k}", signing_public(key)) for k, key in enumerate(keys)))
    return Agreement(run, roster, count if survivors is None else survivors, colluders), keys


def run_secure(
    covenant: Covenant,
    data: Sequence[SiteData],
    keys: Sequence[bytes],
    *,
    directory: str | Path | None = None,
    seed: int | None = None,
    callback: Callable[[RoundRecord], Any] | None = None,
) -> SecureResult:
    """Run a covenant with a server and all of its sites.

    Parameters
    ----------
    data : sequence of SiteData
        The rows of each site.
    keys : sequence of bytes
        The private key of each.
    directory : path, optional
        Where server and sites keep their files; None keeps them in memory.
    seed : int, optional
        For experiments: the noise follows from it.
    callback : callable, optional
        Called with the record of every round.
    """
    place = None if directory is None else Path(directory)
    server = SecureServer(
        covenant, SecureServerStore.in_memory() if place is None else SecureServerStore(place / "run")
    )
    stores = [InMemory() if place is None else SecureStore(site_store(place, site)) for site in range(covenant.sites)]
    sites = [
        SecureSite(covenant, site, data[site], stores[site], keys[site], seed=None if seed is None else seed + site)
        for site in range(covenant.sites)
    ]
    records: list[RoundRecord] = []

    def told(record: RoundRecord) -> None:
        records.append(record)
        if callback is not None:
            callback(record)

    run_to_end(server, sites, told)
    for site, request in server.farewell(b"").items():
        sites[site].answer(request)
    server.store.close()
    words = source_for(seed).describe() if seed is not None else "noise drawn by each site itself"
    return SecureResult(server.found, replace(server.guarantee(), source=words), records, server, sites)


def fit_across(
    estimator: PrivateLinear,
    sites: Sequence[Sequence[Any]],
    *,
    colluders: int = 1,
    survivors: int | None = None,
    rounds: int = ROUNDS,
    spare: int = SPARE,
    directory: str | Path | None = None,
    callback: Callable[[RoundRecord], Any] | None = None,
) -> Any:
    """Fit an estimator on rows that are at several sites, by secure sums, all of them in this process.

    Guarantee: what is seen of one record, or user, by the server and so many colluding sites, within the estimator's
    epsilon and delta, for sites that run apart as these do together (docs/privacy.md, section 12).

    Parameters
    ----------
    estimator : PrivateLinear
        Any private linear model with its ``row_norm``, ``delta``, and ``classes`` or ``target_range`` declared. An
        integer ``random_state`` is for experiments, as in ``fit``.
    sites : sequence of (X, y) or (X, y, groups)
        The rows of each site. With groups the unit is the user, and all rows of a user are at one site.
    colluders : int
        How many of the sites may be in league with the server.
    survivors : int, optional
        The fewest sites that a round goes on with. Default: all.
    rounds : int
        In how many rounds, for each model of a class.
    spare : int
        For how many failed rounds of average cost room is kept.
    directory, callback
        As in ``run_secure``.

    Returns
    -------
    estimator
        The same one, fitted.
    """
    if not isinstance(estimator, PrivateLinear):
        raise ValueError(
            f"estimator is a {type(estimator).__name__}. Pass a private linear one, such as hp.PrivateLinearRegression."
        )
    parts, names = _checked_sites(estimator, sites)
    unit: Unit = "record" if parts[0][2] is None else "user"
    items = [len(y) if groups is None else len(np.unique(groups)) for _, y, groups in parts]
    agreement, keys = agreement_of(len(sites), secrets.token_hex(16), survivors=survivors, colluders=colluders)
    estimator._check_parameters()
    estimator._check_declared()
    budget = Budget(estimator.epsilon, float(estimator.delta))  # type: ignore[arg-type]
    covenant = estimator_covenant(
        agreement, estimator, np.shape(parts[0][0])[1], items, budget, unit=unit, rounds=rounds, spare=spare
    )
    training = covenant.training
    assert isinstance(training, EstimatorTraining)
    held = [SiteData(*rows_of(estimator, training.declared, *part)) for part in parts]
    result = run_secure(covenant, held, keys, directory=directory, seed=estimator._seed(), callback=callback)
    if result.found is None:
        raise RuntimeError("the budget was used up before there was a model. Agree on more spare rounds.")
    fitted = finished(estimator, training.declared, result.found, result.guarantee, len(result.rounds))
    if names is not None:
        fitted.feature_names_in_ = names
    return fitted


def _checked_sites(estimator: PrivateLinear, sites: Sequence[Sequence[Any]]) -> tuple[list[Part], Any]:
    """The rows of each site as the estimator's own ``fit`` would take them, and what all call their columns."""
    kinds = {len(site) for site in sites}
    if len(kinds) != 1 or not kinds <= {2, 3}:
        raise ValueError("sites has entries of different kinds. Pass (X, y) for each site, or (X, y, groups) for each.")
    parts, names = list[Part](), list[Any]()
    for number, site in enumerate(sites):
        alone = clone(estimator)
        if not len(site[1]):
            raise ValueError(f"site {number} of sites has no rows. Leave it out.")
        X, y = alone._checked_rows(site[0], site[1])
        parts.append((X, y, np.asarray(site[2]) if len(site) == 3 else None))
        names.append(getattr(alone, "feature_names_in_", None))
    if any(not np.array_equal(one, names[0]) for one in names[1:]):
        raise ValueError("sites have columns of other names, or in another order. Give all of them the same columns.")
    users = [groups for _, _, groups in parts if groups is not None]
    if users and sum(len(np.unique(one)) for one in users) > len(np.unique(np.concatenate(users))):
        raise ValueError("sites has users with rows at several of them. All rows of a user have to be at one site.")
    return parts, names[0]
