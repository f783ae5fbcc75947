"""Where rows live: in an array, a sparse matrix, a file, other coordinates, or a store of one's own (``Store``)."""

from hushpoint.rows.array import ArrayRows
from hushpoint.rows.integer import BITS, IntegerRows, RowGrid, integer_rows, slope_limits
from hushpoint.rows.items import Rows
from hushpoint.rows.mapped import Mapped
from hushpoint.rows.reading import bounded_rows, checked, scaled_to
from hushpoint.rows.sparse import SparseRows
from hushpoint.rows.store import Store
from hushpoint.rows.streamed import StreamedRows
from hushpoint.rows.turn import Turn

__all__ = [
    "BITS",
    "ArrayRows",
    "IntegerRows",
    "Mapped",
    "RowGrid",
    "Rows",
    "SparseRows",
    "Store",
    "StreamedRows",
    "Turn",
    "bounded_rows",
    "checked",
    "integer_rows",
    "scaled_to",
    "slope_limits",
]
