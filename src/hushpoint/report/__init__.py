"""One HTML page about a run: what was run, what is guaranteed, the figures, and how to get them again.

The page needs nothing but itself: no network, no scripts, no fonts. The same run gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hushpoint._files import require_free, write_text
from hushpoint.report.federated import federated_page
from hushpoint.report.findings import study_page
from hushpoint.report.model import model_page
from hushpoint.report.secure import secure_page

__all__ = ["write"]

# What a page can be about. A further kind of run is one more line here, and in ``_kind`` how it is known.
_PAGES: dict[str, Callable[[Path], str]] = {
    "study": study_page,
    "model": model_page,
    "federated": federated_page,
    "secure": secure_page,
}


def write(run: str | Path, output: str | Path | None = None, force: bool = False) -> Path:
    """Write the page of a study, of a federated run or of a model that ``hushpoint fit`` wrote; return its place.

    Parameters
    ----------
    run : path
        A directory with a run.json, or a model's JSON file.
    output : path, optional
        Default: report.html in the directory, or the model's name with the ending .html.
    force : bool
        Replace an existing page. The page is written whole or not at all.
    """
    source = Path(run)
    kind = _kind(source)
    default = source / "report.html" if source.is_dir() else source.with_suffix(".html")
    place = require_free(default if output is None else output, force)
    write_text(place, _PAGES[kind](source), force)
    return place


def _kind(run: Path) -> str:
    from hushpoint.tables.model_file import FORMAT

    record = _record(run)
    kind = "model" if record.get("format") == FORMAT else record.get("kind")
    if kind not in _PAGES:
        raise ValueError(
            f"{str(run)!r} is no study, no federated run and no model. Pass the directory of a study (hushpoint "
            "reproduce) or of a run (hushpoint federated run), or the JSON file of a model (hushpoint fit)."
        )
    return str(kind)


def _record(run: Path) -> dict[str, Any]:
    """What says which kind of run it is."""
    place = run / "run.json" if run.is_dir() else run
    try:
        record = json.loads(place.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"run {str(place)!r} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ValueError(f"run {str(place)!r} is no valid JSON. Run it again.") from None
    return record if isinstance(record, dict) else {}
