"""What goes wrong, and what both sides say then: each fault happens here, and docs/faults.md is the table of them.

python tests/federated/test_faults.py --update    writes the page anew
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'hushpoint[federated]'")

import fault_cases
import secure_fault_cases  # noqa: F401  the rows of secure sums
from faults import FAULTS, Bench, Clock, Fault
from flwr.supercore.task_identity import TaskIdentity

from hushpoint.federated import flower

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
COLUMNS = ("what goes wrong", "the site says", "the server says", "what is spent", "how it goes on")
HEADER = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|\n"
BEGIN, END = "<!-- faults -->\n", "<!-- end of faults -->\n"


def line_of(fault: Fault, place: Path) -> str:
    """What happens, as a line of the table."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_task_id", "_run_id", "_node_id"):
            patch.setattr(TaskIdentity, name, 1)
        patch.setattr(flower, "time", Clock())
        seen = fault.happens(Bench(place))
    cells = (fault.name, seen.site, seen.server, seen.spent, seen.then)
    return f"| {' | '.join(cell.replace(str(place), 'DIR').replace('|', '/') for cell in cells)} |\n"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name[:60])
def test_a_fault_is_told_as_the_page_says(fault, tmp_path):
    # catches: an end without a name or a way out, a run that one site ends, a count that is lost on the way
    again = "python tests/federated/test_faults.py --update"
    assert line_of(fault, tmp_path) in PAGE.read_text(encoding="utf-8"), again


def test_the_page_has_no_other_faults():
    table = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]] == [f.name for f in FAULTS]
    assert fault_cases.ROUNDS == 4  # as the page says


def update() -> None:
    """Write the table anew; the rest of the page stays."""
    text = PAGE.read_text(encoding="utf-8")
    lines = []
    for fault in FAULTS:
        with tempfile.TemporaryDirectory() as place:
            lines.append(line_of(fault, Path(place)))
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + BEGIN + HEADER + "".join(lines) + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__" and "--update" in sys.argv:
    update()
