"""From a table and its schema to a private model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from hushpoint import cells
from hushpoint._types import Array
from hushpoint.privacy.guarantee import Budget, Guarantee
from hushpoint.schema import LEAVE_OUT, ONLY_IF_PUBLIC, Boolean, Category, Number, Schema, load_schema
from hushpoint.tables.budget import settled_delta
from hushpoint.tables.model_file import ESTIMATORS, TableModel, estimator_class
from hushpoint.tables.ranges import RANGE_SHARE, learned_ranges, split_budget, together
from hushpoint.tables.reading import read_chunks
from hushpoint.tables.scoring import ADDITIVE, Deviations

_WIDE = 200  # encoded features from which a table of indicators is kept sparse


def fit_model(
    data: Any,
    schema: Schema | str | Path,
    *,
    epsilon: float,
    delta: float | None = None,
    model: str | None = None,
    target: str | None = None,
    groups: str | None = None,
    row_norm: float | None = None,
    range_share: float = RANGE_SHARE,
    seed: int | None = None,
    **options: Any,
) -> TableModel:
    """Train a private model of a table, with bounds from the schema and never from the data.

    Guarantee: ``model.guarantee``, that of the estimator, composed with that of learned ranges where there are any.

    Parameters
    ----------
    data : path, data frame or dictionary of columns
        A .csv, .csv.gz or .parquet file, or a table in memory.
    schema : Schema or path
    epsilon : float
    delta : float, optional
        Default: ``n**-1.1``, n the number of rows, or of users with groups. 1/n or more is refused.
    model : {"logistic", "svc", "linear", "lasso", "huber", "additive"}, optional
        Default: logistic for a category or boolean, linear for a number. "additive" is either with a smooth curve for
        each number in place of a line.
    target, groups : str, optional
        Columns, where they are not those of the schema.
    row_norm : float, optional
        Longer rows are scaled down to this, in training and in predictions. Default:
        ``TableEncoder.typical_row_norm_``; of an additive model ``row_norm_``, so that no curve is bent.
    range_share : float
        The share of the budget (of mu squared) for the ranges of columns that the schema marks ``learn = true``; unused
        where there are none.
    seed : int, optional
        None draws from the operating system; an integer is for experiments.
    **options
        Handed to the estimator where given and not None: penalty, alpha, adjacency, fit_intercept, ...
    """
    from hushpoint.estimators.base import Design
    from hushpoint.estimators.constraints import cone_of
    from hushpoint.estimators.planner import plan_waves
    from hushpoint.preprocessing import TableEncoder

    known = schema if isinstance(schema, Schema) else load_schema(schema)
    known = known.with_roles(target, groups)
    kind = chosen_kind(model, known)
    if kind != ADDITIVE:
        _refuse_shapes(kind, known)
    Budget(epsilon, 1e-6 if delta is None else delta)  # refuses before a long table is read
    learned, left, ranges = known, epsilon, None
    if known.to_learn:
        values, users = values_to_learn(data, known)
        delta = settled_delta(delta, _items(values, users), _unit(known))
        mu, left = split_budget(epsilon, delta, range_share)
        adjacency: Any = options.get("adjacency") or "replace-one"
        learned, ranges = learned_ranges(values, known, users, mu, delta, adjacency, seed)
    waves = None
    if kind == ADDITIVE:  # how many waves a number is to have depends on how many rows there are
        targets, users = _gathered(data, learned, lambda chunk: declared_targets(learned, chunk))
        items = _items(np.concatenate(targets), users)
        planned = Budget(left, settled_delta(delta, items, _unit(known)), adjacency=options.get("adjacency"))
        waves = plan_waves(items, len(learned.features), planned, two_class=learned.task == "classification")
    encoder = TableEncoder(learned, row_norm=row_norm, waves=waves).fit()
    if kind == ADDITIVE:
        row_norm = encoder.row_norm_
    elif row_norm is None:
        row_norm = encoder.typical_row_norm_
    encoder.set_params(row_norm=row_norm, sparse_output=_mostly_zeros(encoder)).fit()
    X, y, users = matrices(data, learned, encoder)
    items = _items(y, users)
    delta = settled_delta(delta, items, _unit(known))
    design = None
    if kind == ADDITIVE:
        design = Design(encoder.wave_places(), encoder.effective_width_, cone_of(encoder))
    estimator = _estimator(kind, learned, left, delta, row_norm, seed, options)
    estimator._design = design
    estimator.fit(X, y, groups=users)
    guarantee = estimator.guarantee_ if ranges is None else together(ranges, estimator.guarantee_, epsilon)
    return table_model(kind, learned, encoder, estimator, guarantee, items, list(known.to_learn))


def table_model(
    kind: str, schema: Schema, encoder: Any, estimator: Any, guarantee: Guarantee, items: int, to_learn: list[str]
) -> TableModel:
    """What a fitted estimator, an encoder and a schema make together; ``items`` is the public n."""
    return TableModel(
        kind,
        schema,
        np.asarray(estimator.coef_, dtype=np.float64),
        estimator.intercept_,
        tuple(map(str, estimator.classes_)) if schema.task == "classification" else None,
        guarantee,
        {
            "scale": encoder.scale,
            "row_norm": encoder.row_norm,
            **({"waves": encoder.waves} if kind == ADDITIVE else {}),
        },
        {
            # With users the number of rows is private: it moves with what one of them contributes.
            "rows": items if schema.groups is None else None,
            "users": None if schema.groups is None else items,
            "steps": np.asarray(estimator.n_iter_).max().item(),
            "learned_ranges": to_learn,
            "parameters": {name: _plain(value) for name, value in estimator.get_params(deep=False).items()},
            "plan": {name: _plain(value) for name, value in asdict(estimator.parameters_).items()},
        },
        _deviations(estimator, encoder if kind == ADDITIVE else None),
    )


def linear_model(
    schema: Schema, kind: str, epsilon: float, delta: float, row_norm: float | None, options: dict[str, Any]
) -> tuple[Any, Any]:
    """The encoder of a schema and the estimator of a linear model on what it gives, from what is declared alone."""
    from hushpoint.preprocessing import TableEncoder

    _refuse_shapes(kind, schema)
    encoder = TableEncoder(schema, row_norm=row_norm).fit()
    row_norm = encoder.typical_row_norm_ if row_norm is None else row_norm
    encoder.set_params(row_norm=row_norm, sparse_output=_mostly_zeros(encoder)).fit()
    return encoder, _estimator(kind, schema, epsilon, delta, row_norm, None, options)


def _deviations(estimator: Any, encoder: Any) -> Deviations | None:
    """How far noise moves a model, and the shapes of an additive one; None where its law is not known."""
    from hushpoint.estimators.additive import shape_deviations
    from hushpoint.preprocessing import TableEncoder

    if not np.isfinite(estimator.coef_std_).all():
        return None
    roots, shapes = estimator.noise_roots(), {}
    if encoder is not None:
        plain = TableEncoder(encoder.schema, scale=encoder.scale, waves=encoder.waves).fit()
        shapes = {name: _short(shape_deviations(plain, roots, name)[1]) for name in encoder.schema_.features}
    return Deviations(np.asarray(estimator.coef_std_), estimator.intercept_std_, shapes)


def _short(values: Array) -> Array:
    """To four digits: there are many of them, and they are for drawing."""
    return np.array([float(f"{value:.4g}") for value in values.ravel()]).reshape(values.shape)


def chosen_kind(model: str | None, schema: Schema) -> str:
    """The model asked for, or the usual one for the target."""
    task = schema.task
    if task == "classification" and len(schema.classes) < 2:
        raise ValueError(f"target {schema.target!r} declares one class. Declare at least two values.")
    if getattr(schema.target_column, "learn", False):
        raise ValueError(f"target {schema.target!r} has learn = true. Declare its range: only features' are learned.")
    if model is None:
        return "logistic" if task == "classification" else "linear"
    fitting = ESTIMATORS[task]
    if model not in fitting:
        kind = schema.target_column.kind
        raise ValueError(
            f"model is {model!r} and the target {schema.target!r} is a {kind}. Choose one of: {', '.join(fitting)}."
        )
    return model


def _refuse_shapes(kind: str, schema: Schema) -> None:
    """Of models with lines alone nothing is known to be monotone, or in steps."""
    for name, column in schema.features.items():
        for setting in ("monotone", "steps"):
            if getattr(column, setting, None) is not None:
                raise ValueError(
                    f"column {name!r} declares {setting}, which a {kind} model does not keep. Train an additive one "
                    f'(model="additive", --model additive), or remove {setting}.'
                )


def _gathered(data: Any, schema: Schema, take: Callable[[Any], Any]) -> tuple[list[Any], NDArray[Any] | None]:
    """What is taken of each part of a table, and the users."""
    taken, users = [], []
    for chunk in read_chunks(data) if isinstance(data, (str, Path)) else [data]:
        require_declared(schema, chunk)
        taken.append(take(chunk))
        if schema.groups is not None:
            users.append(users_of(schema.groups, schema, chunk))
    return taken, np.concatenate(users) if users else None


def values_to_learn(data: Any, schema: Schema) -> tuple[Array, NDArray[Any] | None]:
    """The columns whose range is to be learned, NaN where missing, and the users."""

    def numbers(chunk: Any) -> Array:
        columns = {name: cells.column_of(chunk, name) for name in schema.to_learn}
        return np.column_stack([cells.numbers(c, schema.missing_values, name) for name, c in columns.items()])

    values, users = _gathered(data, schema, numbers)
    return np.vstack(values), users


def _items(rows: NDArray[Any], users: NDArray[Any] | None) -> int:
    """The public n: rows, or users where there are any."""
    return len(rows) if users is None else len(np.unique(users))


def _unit(schema: Schema) -> str:
    return "record" if schema.groups is None else "user"


def matrices(data: Any, schema: Schema, encoder: Any) -> tuple[Any, NDArray[Any], NDArray[Any] | None]:
    """Features, targets and users, part by part."""
    parts, users = _gathered(data, schema, lambda chunk: (encoder.transform(chunk), declared_targets(schema, chunk)))
    features, targets = zip(*parts, strict=True)
    X = scipy.sparse.vstack(features, format="csr") if scipy.sparse.issparse(features[0]) else np.vstack(features)
    return X, np.concatenate(targets), users


def require_declared(schema: Schema, table: Any) -> None:
    """Refuse a table that lacks a declared column, or has one that is not declared."""
    names = cells.names_of(table)
    needed = [*schema.features, schema.target, schema.groups]
    absent = [name for name in needed if name is not None and name not in names]
    if absent:
        raise ValueError(f"the table lacks {', '.join(map(repr, absent))}. It needs every declared column.")
    extra = [str(name) for name in names if name not in schema.columns and name != schema.groups]
    if extra:
        raise ValueError(
            f'the schema does not declare {", ".join(map(repr, extra))}. Add each column, with kind = "ignore" if it '
            "is not to be used."
        )


def declared_targets(schema: Schema, table: Any) -> NDArray[Any]:
    """The targets of a table: numbers clipped to their range, or names of classes."""
    assert schema.target is not None
    column, given = schema.target_column, cells.column_of(table, schema.target)
    who = f"target {schema.target!r}"
    if isinstance(column, Number):
        values = cells.numbers(given, schema.missing_values, schema.target)
        if np.isnan(values).any():
            raise ValueError(f"{who} has missing cells, which teach and judge nothing: {LEAVE_OUT}")
        return np.clip(values, column.low, column.high)
    assert isinstance(column, (Boolean, Category))
    if isinstance(column, Category):
        codes = cells.categories(given, column.values, schema.missing_values)
    else:
        codes = cells.truths(given, schema.missing_values)
    if (codes < 0).any():
        raise ValueError(
            f"{who} has missing cells or classes that are not declared. To allow a class, declare it. {ONLY_IF_PUBLIC}"
        )
    return np.array(schema.classes)[codes]


def users_of(groups: str, schema: Schema, table: Any) -> NDArray[Any]:
    """Whose row each one is, by the column that says so."""
    column = cells.column_of(table, groups)
    if cells.missing(column, schema.missing_values).any():
        raise ValueError(f"groups column {groups!r} has missing cells. Give every row a user.")
    return np.array(cells.texts(column))


def _estimator(
    kind: str, schema: Schema, epsilon: float, delta: float, row_norm: float, seed: int | None, options: dict[str, Any]
) -> Any:
    make = estimator_class(kind, schema.task)
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("penalty") == "none":
        given["penalty"] = None
    taken = make().get_params(deep=False)
    for name in given:
        if name not in taken:
            raise ValueError(f"{name} was given and a {kind} model has none. Leave it out, or choose another model.")
    if isinstance(schema.target_column, Number):
        given["target_range"] = (schema.target_column.low, schema.target_column.high)
    else:
        given["classes"] = schema.classes  # which classes occur in the data is private
    return make(epsilon=epsilon, delta=delta, row_norm=row_norm, random_state=seed, **given)


def _mostly_zeros(encoder: Any) -> bool:
    width = len(encoder.get_feature_names_out())
    return width >= _WIDE and width >= 10 * len(encoder.schema_.features)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
