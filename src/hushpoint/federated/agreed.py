"""What all parties of a run agree on, in one name: the plan, what the data mean, and which run of it this is."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hushpoint._files import write_json
from hushpoint.federated.shape import Shape
from hushpoint.federated.terms import plan_digest
from hushpoint.plan import Plan
from hushpoint.preprocessing.version import VERSION

_FORMAT = 1
FILE = "agreement.json"


@dataclass(frozen=True)
class Agreed:
    """A plan with what gives its numbers their meaning.

    Parameters
    ----------
    plan : Plan
        Method, loss, units, noise and budget.
    shape : Shape, optional
        The schema of the tables, with the order of its columns and classes, or how many features arrays have; None
        inside one process, where there is one source of rows.
    nonce : str
        Drawn when the plan is made: a new run of the same plan is another run, and one that goes on is the same.
    encoder : int
        How a table becomes numbers, by the version of that rule.
    """

    plan: Plan
    shape: Shape | None = None
    nonce: str = ""
    encoder: int = field(default=VERSION)

    @cached_property
    def run(self) -> str:
        """The name of the run: a digest of all this. Sites answer no other."""
        if self.shape is None and not self.nonce:
            return plan_digest(self.plan)
        return _digest([plan_digest(self.plan), self.data, self.nonce])

    @cached_property
    def data(self) -> str:
        """The digest of what the data mean. Columns and classes have an order, so nothing is sorted."""
        return _digest([self.encoder, None if self.shape is None else self.shape.to_dict()])

    def write(self, folder: Path) -> None:
        """Write ``agreement.json`` beside the plan and the schema, which it names by their digests."""
        record = {"format": _FORMAT, "run": self.run, "nonce": self.nonce, "encoder": self.encoder}
        write_json(folder / FILE, {**record, "plan": plan_digest(self.plan), "data": self.data})


def drawn_nonce() -> str:
    """A name that no other run has."""
    return secrets.token_hex(16)


def read_agreed(folder: Path, plan: Plan, shape: Shape) -> Agreed:
    """What was agreed on, for the plan and the schema of a folder; an error that says which of them is another."""
    known = read_record(folder)
    found = Agreed(plan, shape, known["nonce"])
    again = f"Ask whoever runs the server for {FILE}, plan.json and schema.toml, all three, and compare what they say."
    if known["encoder"] != found.encoder:
        raise ValueError(
            f"{FILE} in {str(folder)!r} was made by a version of hushpoint that makes other numbers of a table "
            f"({known['encoder']}, and this one {found.encoder}). Install the version that the others have."
        )
    if known["plan"] != plan_digest(plan):
        raise ValueError(f"plan.json in {str(folder)!r} is not the plan of its {FILE}. {again}")
    if known["data"] != found.data:
        raise ValueError(
            f"schema.toml in {str(folder)!r} is not the schema of its {FILE}: a range, a class or the order of columns "
            f"or classes differs. {again}"
        )
    return found


def read_record(folder: Path) -> dict[str, Any]:
    """``agreement.json`` as it is."""
    place = folder / FILE
    try:
        record = json.loads(place.read_text(encoding="utf-8"))
        if record["format"] != _FORMAT or not all(isinstance(record[name], str) for name in ("nonce", "plan", "data")):
            raise ValueError
        return {**record, "encoder": int(record["encoder"])}
    except OSError as error:
        raise ValueError(
            f"{str(place)!r} cannot be read: {error.strerror}. Make it where the server is (hushpoint federated plan), "
            "and hand it to the sites with plan.json and schema.toml."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{str(place)!r} is no agreement. Make it anew: hushpoint federated plan.") from None


def _digest(record: Any) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()[:32]
