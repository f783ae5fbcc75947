"""Preparing data without reading bounds off it: declared scaling and encoding, and private estimates of ranges.

The declared transformers learn nothing: ranges, categories and norms are what the caller says is public, and fitting
checks shapes and names only. The private ones (``private_quantile`` and what stands on it) read the data through
Gaussian noise and return, beside the estimate, the guarantee to compose with that of the training
(docs/preprocessing.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpoint._on_demand import on_demand

if TYPE_CHECKING:
    from hushpoint.preprocessing.encoder import TableEncoder
    from hushpoint.preprocessing.onehot import DeclaredOneHot
    from hushpoint.preprocessing.quantiles import PrivateEstimate, private_quantile, private_ranges, private_row_norm
    from hushpoint.preprocessing.scaling import PrivateRangeScaler, RangeScaler, RowNormalizer

__all__ = [
    "DeclaredOneHot",
    "PrivateEstimate",
    "PrivateRangeScaler",
    "RangeScaler",
    "RowNormalizer",
    "TableEncoder",
    "private_quantile",
    "private_ranges",
    "private_row_norm",
]

__getattr__, __dir__ = on_demand(
    __name__,
    __all__,
    {
        "hushpoint.preprocessing.encoder": ["TableEncoder"],
        "hushpoint.preprocessing.onehot": ["DeclaredOneHot"],
        "hushpoint.preprocessing.quantiles": [
            "PrivateEstimate",
            "private_quantile",
            "private_ranges",
            "private_row_norm",
        ],
        "hushpoint.preprocessing.scaling": ["PrivateRangeScaler", "RangeScaler", "RowNormalizer"],
    },
)
