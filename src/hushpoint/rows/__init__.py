"""Where rows live: in an array, a sparse matrix, a file, other coordinates, or a store of one's own (``Store``)."""

from hushpoint.rows.array import ArrayRows
from hushpoint.rows.items import Rows
from hushpoint.rows.mapped import Mapped
from hushpoint.rows.reading import bounded_rows, checked, scaled_to
from hushpoint.rows.sparse import SparseRows
from hushpoint.rows.store import Store
from hushpoint.rows.streamed import StreamedRows

__all__ = ["ArrayRows", "Mapped", "Rows", "SparseRows", "Store", "StreamedRows", "bounded_rows", "checked", "scaled_to"]
