"""The picture of what epsilon is needed, beside a fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hushpoint.estimators.expected import ExpectedAccuracy
    from hushpoint.tables.model_file import TableModel

CurveOption = Annotated[
    Path | None,
    typer.Option(help="Draw the expected score against epsilon: a PNG and an SVG of this name. No data enters it."),
]
GuessOption = Annotated[
    float | None,
    typer.Option(
        help="For --curve: a public guess of the score without privacy, accuracy or R2; default: 0.85 or 0.5."
    ),
]
BaseRateOption = Annotated[
    float | None,
    typer.Option(help="For --curve: a public guess of the share of the more frequent of two classes; default: 0.5."),
]


@dataclass(frozen=True)
class Asked:
    """Where the picture is to go, and what is guessed."""

    stem: Path
    guess: float | None
    base_rate: float | None

    @property
    def files(self) -> tuple[Path, Path]:
        """The files that will be written."""
        return self.stem.with_name(f"{self.stem.name}.png"), self.stem.with_name(f"{self.stem.name}.svg")

    def drawn(self, fitted: TableModel) -> ExpectedAccuracy:
        """Draw what models like this are expected to score."""
        from hushpoint.plots.expected import expected
        from hushpoint.tables.expected import expected_of

        found = expected_of(fitted, self.guess, self.base_rate)
        expected(found, self.stem, chosen=fitted.guarantee.epsilon)
        return found


def asked_for(
    curve: Path | None, schema: Path, target: str | None, guess: float | None, base_rate: float | None, force: bool
) -> Asked | None:
    """What is to be drawn; whatever is wrong with it is said before the budget is spent."""
    if curve is None:
        if guess is not None or base_rate is not None:
            raise ValueError("--guess and --base-rate are for the picture. Pass --curve FILE too, or leave them out.")
        return None
    from hushpoint._files import require_free
    from hushpoint.plots import drawing
    from hushpoint.schema import load_schema
    from hushpoint.tables.expected import require_guess

    stem = curve.with_suffix("") if curve.suffix.lower() in (".png", ".svg") else curve
    asked = Asked(stem, guess, base_rate)
    for file in asked.files:
        require_free(file, force)
    with drawing.look():  # says so if there is no matplotlib
        require_guess(load_schema(schema).with_roles(target, None), guess, base_rate)
    return asked
