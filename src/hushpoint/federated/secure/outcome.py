"""What a run with secure sums leaves: the model for people to use, and a record of what it cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpoint._files import write_bytes
from hushpoint._version import __version__
from hushpoint.federated.models import model_bytes, model_of_plan
from hushpoint.federated.secure.trainings import PlanTraining
from hushpoint.federated.shape import Shape
from hushpoint.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from hushpoint.federated.secure.learner import Learner
    from hushpoint.federated.secure.server import SecureServer

_DRAWN = "noise drawn by each site itself"


def statement(server: SecureServer) -> Guarantee:
    """What the run has cost a site that took part in every round."""
    return replace(server.guarantee(), source=_DRAWN)


def write_model(server: SecureServer, learner: Learner | None, path: Path, status: str | None = None) -> bytes:
    """Write the last public model, and give its bytes; nothing where the run came to none."""
    found, guarantee, covenant = server.so_far, statement(server), server.covenant
    if found is None or not np.isfinite(found.models).all():
        return b""
    run: dict[str, Any] = {"run": covenant.name, "status": status or server.status, "rounds": server.state.rounds}
    training = covenant.training
    if learner is not None:
        run |= {"method": "secure sums", "sites": covenant.sites}
        model = learner.model(covenant, found, guarantee, server.state.rounds, run)
    else:
        assert isinstance(training, PlanTraining)
        shape = Shape.from_dict(covenant.about["schema"]) if "schema" in covenant.about else None
        run["planned_rounds"] = training.plan.steps
        model = model_of_plan(training.plan, shape, found.models[0], [guarantee], run)
    content = model_bytes(model)
    write_bytes(path, content)
    return content


def _figures(server: SecureServer) -> dict[str, Any] | None:
    """What held-out rows told, and of how many items; None where they were not asked, or not yet, or in vain."""
    from hushpoint.federated.secure.learner import Learner

    covenant, found = server.covenant, server.found
    if found is None or found.held_out is None:
        return None
    figures = Learner.of(covenant.about, covenant.budget).figures(covenant, found, server.state.louder)
    return {"items": sum(covenant.training.held_out), "unit": covenant.training.unit, "figures": figures}


def run_record(server: SecureServer, status: str, why: str = "") -> dict[str, Any]:
    """A run as ``run.json`` holds it."""
    covenant, state = server.covenant, server.state
    training = covenant.training
    return {
        "format": 1,
        "kind": "secure",
        "name": training.plan.method if isinstance(training, PlanTraining) else covenant.about["model"]["name"],
        "version": __version__,
        "run": covenant.name,
        "fingerprint": covenant.fingerprint,
        "status": status,
        "why": why,
        "trusted": "nobody",
        "secret_sample": False,
        "sites": [name for name, _ in covenant.agreement.roster.sites],
        "colluders": covenant.agreement.colluders,
        "survivors": covenant.agreement.survivors,
        "rounds": state.rounds,
        "failed_rounds": state.failed,
        "spare_rounds": covenant.spare,
        "spent": [statement(server).to_dict()],
        "promised": [covenant.promise().to_dict()],
        "held_out": _figures(server),
        "facts": training.facts.to_dict(),
    }
