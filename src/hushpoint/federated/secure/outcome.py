"""What a run with secure sums leaves: the model for people to use, and a record of what it cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpoint._files import write_json
from hushpoint._version import __version__
from hushpoint.federated.secure.trainings import PlanTraining
from hushpoint.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from hushpoint.federated.secure.learner import Learner
    from hushpoint.federated.secure.server import SecureServer

_DRAWN = "noise drawn by each site itself"


def statement(server: SecureServer) -> Guarantee:
    """What the run has cost a site that took part in every round."""
    return replace(server.guarantee(), source=_DRAWN)


def write_model(server: SecureServer, learner: Learner | None, path: Path) -> bytes:
    """Write the model that was found, and give its bytes; nothing where the run came to none."""
    found, guarantee = server.found, statement(server)
    if found is None:
        return b""
    if learner is not None:
        learner.save(server.covenant, found, guarantee, server.state.rounds, path)
    else:
        write_json(path, {"model": found.models[0].tolist(), **run_record(server, server.status)})
    return path.read_bytes()


def _figures(server: SecureServer) -> dict[str, Any] | None:
    """What held-out rows told, and of how many items; None where they were not asked, or not yet, or in vain."""
    from hushpoint.federated.secure.learner import Learner

    covenant, found = server.covenant, server.found
    if found is None or found.held_out is None:
        return None
    figures = Learner.of(covenant.about, covenant.budget).figures(covenant, found, server.state.louder)
    return {"items": sum(covenant.training.held_out), "unit": covenant.training.unit, "figures": figures}


def run_record(server: SecureServer, status: str) -> dict[str, Any]:
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
        "trusted": "nobody",
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
