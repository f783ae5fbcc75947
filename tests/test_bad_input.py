"""Bad input: every refusal is a ValueError with argument, value and remedy, and tells nothing of the data."""

import re

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import hushpoint as hp
from hushpoint.certificates import Certificate
from hushpoint.noise import Noise
from hushpoint.schedules import EveryBlock

methods, regularizers = hp.methods, hp.regularizers
NAN, INF = float("nan"), float("inf")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 3))
Y = RNG.normal(size=8)
LABELS = np.array(["no", "yes"] * 4)
LASSO = hp.Problem(X, Y, "squared", regularizers.L1(0.1), row_norm=1.0, clip=1.0)
RIDGE = hp.Problem(X, Y, "squared", regularizers.L2(0.1), row_norm=1.0, clip=1.0)
ABSOLUTE = hp.Problem(X, Y, "absolute", row_norm=1.0)
GROUPED = hp.Problem(X, Y, "squared", regularizers.GroupL1(0.1, ((0, 1),)), row_norm=1.0, clip=1.0)
STATE = methods.centralized_admm(LASSO, 2, 1.0, noise_std=0.1).run(seed=0).state


def with_entry(value):
    spoiled = X.copy()
    spoiled[2, 1] = value
    return spoiled


def admm(problem=LASSO, steps=4, gamma=1.0, *, noise_std=0.1, **extra):
    return methods.centralized_admm(problem, steps, gamma, noise_std=noise_std, **extra)


def private(**extra):
    return methods.private_admm(RIDGE, 4, 1.0, noise_std=0.1, **extra)


def federated(**extra):
    return methods.federated_admm(LASSO, 4, 1.0, **{"noise_std": 0.1, **extra})


def walk(**extra):
    return methods.decentralized_admm(LASSO, 4, 1.0, noise_std=0.1, **extra)


def sgd(problem=LASSO, steps=4, step_size=0.1, **extra):
    return methods.dp_sgd(problem, steps, step_size, **{"noise_std": 0.1, **extra})


# (what is wrong, the call, the argument, the value or shape, the remedy): the last three must be in the message.
CASES = [
    # X
    ("NaN in X", lambda: hp.Problem(with_entry(NAN), Y), "X", "NaN", "impute"),
    ("infinite X", lambda: hp.Problem(with_entry(-INF), Y), "X", "infinite", "Remove"),
    ("NaN in sparse X", lambda: hp.Problem(scipy.sparse.csr_array(with_entry(NAN)), Y), "X", "NaN", "impute"),
    ("NaN in a frame", lambda: hp.Problem(pd.DataFrame(with_entry(NAN)), Y), "X", "NaN", "impute"),
    ("no rows", lambda: hp.Problem(X[:0], Y[:0]), "X", "(0, 3)", "at least one row"),
    ("no features", lambda: hp.Problem(X[:, :0], Y), "X", "(8, 0)", "one feature"),
    ("1-d X", lambda: hp.Problem(X[:, 0], Y), "X", "1 dimension", "(rows, features)"),
    ("3-d X", lambda: hp.Problem(X[:, :, None], Y), "X", "3 dimension", "(rows, features)"),
    ("text X", lambda: hp.Problem([["a", "b"]] * 8, Y), "X", "list", "Encode text"),
    ("numbers as text", lambda: hp.Problem([["1", "2"]] * 8, Y), "X", "list", "Encode text"),
    ("a text column", lambda: hp.Problem(pd.DataFrame({"a": Y, "b": LABELS}), Y), "X", "DataFrame", "Encode text"),
    ("dates", lambda: hp.Problem(pd.DataFrame({"a": pd.to_datetime(["2020"] * 8)}), Y), "X", "DataFrame", "Encode"),
    ("complex X", lambda: hp.Problem(X + 0j, Y), "X", "ndarray", "numbers"),
    ("ragged X", lambda: hp.Problem([[1.0], [1.0, 2.0]], [0, 1]), "X", "list", "numbers"),
    # y
    ("short y", lambda: hp.Problem(X, Y[:-1]), "y", "7 entries", "one target per row"),
    ("2-d y", lambda: hp.Problem(X, np.stack([Y, Y], axis=1)), "y", "(8, 2)", "one target per row"),
    ("NaN in y", lambda: hp.Problem(X, np.where(Y > 0, NAN, Y)), "y", "NaN", "Remove"),
    ("infinite y", lambda: hp.Problem(X, np.where(Y > 0, INF, Y)), "y", "infinite", "Remove"),
    ("text y for squared", lambda: hp.Problem(X, LABELS, "squared"), "y", "not numeric", "two-class"),
    ("digits as text", lambda: hp.Problem(X, np.array(["0", "1"] * 4), "squared"), "y", "not numeric", "Convert"),
    ("dates as y", lambda: hp.Problem(X, pd.to_datetime(["2020"] * 8), "squared"), "y", "not numeric", "Convert"),
    ("one class", lambda: hp.Problem(X, np.ones(8), "logistic"), "y", "one class", "two values"),
    ("three classes", lambda: hp.Problem(X, np.arange(8) % 3, "logistic"), "y", "more than two", "two values"),
    ("NaN label", lambda: hp.Problem(X, [0, 1, NAN, 0, 1, 0, 1, 0], "logistic"), "y", "NaN", "Remove"),
    ("missing label", lambda: hp.Problem(X, ["a", "b", None] + ["a"] * 5, "logistic"), "y", "missing", "Remove"),
    ("NA label", lambda: hp.Problem(X, pd.Series([0, 1, pd.NA] + [0] * 5), "logistic"), "y", "missing", "Remove"),
    # groups
    ("short groups", lambda: hp.Problem(X, Y, groups=np.arange(7)), "groups", "(7,)", "one user id per row"),
    ("2-d groups", lambda: hp.Problem(X, Y, groups=np.zeros((8, 2))), "groups", "(8, 2)", "one user id per row"),
    ("NaN in groups", lambda: hp.Problem(X, Y, groups=[1.0, NAN] * 4), "groups", "NaN", "Give every row a user"),
    ("missing group", lambda: hp.Problem(X, Y, groups=["u", None] * 4), "groups", "missing", "Give every row a user"),
    ("mixed groups", lambda: hp.Problem(X, Y, groups=pd.Series([1, "a"] * 4)), "groups", "mixes", "one kind"),
    # the rest of Problem
    ("row_norm 0", lambda: hp.Problem(X, Y, row_norm=0), "row_norm", "0", "positive"),
    ("negative row_norm", lambda: hp.Problem(X, Y, row_norm=-1.5), "row_norm", "-1.5", "positive"),
    ("row_norm as text", lambda: hp.Problem(X, Y, row_norm="1.0"), "row_norm", "'1.0'", "positive"),
    ("infinite row_norm", lambda: hp.Problem(X, Y, row_norm=INF), "row_norm", "inf", "positive"),
    ("clip 0", lambda: hp.Problem(X, Y, clip=0.0), "clip", "0.0", "positive"),
    ("NaN clip", lambda: hp.Problem(X, Y, clip=NAN), "clip", "nan", "positive"),
    ("unknown loss", lambda: hp.Problem(X, Y, "cubic"), "loss", "'cubic'", "'squared'"),
    ("regularizer by name", lambda: hp.Problem(X, Y, regularizer="l1"), "regularizer", "'l1'", "L1(0.1)"),
    ("regularizer as number", lambda: hp.Problem(X, Y, regularizer=0.5), "regularizer", "0.5", "L1(0.1)"),
    ("long box", lambda: hp.Problem(X, Y, regularizer=regularizers.Box((0.0,) * 4, 1.0)), "low", "4", "per coordinate"),
    ("far group", lambda: hp.Problem(X, Y, regularizer=regularizers.GroupL1(1.0, ((7,),))), "groups", "7", "from 0"),
    ("unknown weights", lambda: hp.Problem(X, Y, weights="users"), "weights", "'users'", "'items'"),
    ("intercept as text", lambda: hp.Problem(X, Y, fit_intercept="no"), "fit_intercept", "'no'", "True or False"),
    ("no items", lambda: hp.Problem.declared(0, 3), "items", "0", "whole number"),
    ("half a feature", lambda: hp.Problem.declared(5, 2.5), "features", "2.5", "whole number"),
    (
        "rows per item",
        lambda: hp.Problem.declared(3, 2, rows_per_item=[1, 2]),
        "rows_per_item",
        "2 entries",
        "one each",
    ),
    ("empty item", lambda: hp.Problem.declared(2, 2, rows_per_item=[1, 0]), "rows_per_item", "0", "at least 1"),
    ("half a row", lambda: hp.Problem.declared(2, 2, rows_per_item=[1, 1.5]), "rows_per_item", "1.5", "whole"),
    ("model of another length", lambda: LASSO.objective(np.zeros(5)), "model", "(5,)", "length 3"),
    # relaxation, gamma, steps, noise
    ("relaxation 0", lambda: admm(relaxation=0.0), "relaxation", "0.0", "(0, 1]"),
    ("relaxation 1.5", lambda: admm(relaxation=1.5), "relaxation", "1.5", "(0, 1]"),
    ("relaxation NaN", lambda: admm(relaxation=NAN), "relaxation", "nan", "(0, 1]"),
    ("relaxation as text", lambda: admm(relaxation="x"), "relaxation", "'x'", "(0, 1]"),
    ("too few relaxations", lambda: admm(relaxation=[0.5] * 3), "relaxation", "3 entries for 4", "one per step"),
    ("one bad relaxation", lambda: admm(relaxation=[0.5, 0.5, 2.0, 0.5]), "relaxation", "2.0", "(0, 1]"),
    ("gamma 0", lambda: admm(gamma=0), "gamma", "0", "positive"),
    ("negative gamma", lambda: methods.anchored_admm(LASSO, 4, -1.0, noise_std=0.1), "gamma", "-1.0", "positive"),
    ("gamma NaN", lambda: methods.private_admm(LASSO, 4, NAN, noise_std=0.1), "gamma", "nan", "positive"),
    ("gamma as text", lambda: methods.stateless_walk(RIDGE, 4, "x", noise_std=0.1), "gamma", "'x'", "positive"),
    ("infinite gamma", lambda: methods.federated_admm(LASSO, 4, INF, noise_std=0.1), "gamma", "inf", "positive"),
    ("no steps", lambda: admm(steps=0), "steps", "0", "whole number"),
    ("steps 1.5", lambda: admm(steps=1.5), "steps", "1.5", "whole number"),
    ("steps True", lambda: sgd(steps=True), "steps", "True", "whole number"),
    ("no rounds", lambda: methods.federated_admm(LASSO, 0, 1.0, noise_std=0.1), "rounds", "0", "whole number"),
    ("hops as text", lambda: methods.stateless_walk(RIDGE, "9", 1.0, noise_std=0.1), "hops", "'9'", "whole number"),
    ("no noise_std", lambda: admm(noise_std=None), "noise_std", "None", "Pass noise_std=s"),
    ("negative noise_std", lambda: admm(noise_std=-0.1), "noise_std", "-0.1", "0 or larger"),
    ("noise_std NaN", lambda: sgd(noise_std=NAN), "noise_std", "nan", "0 or larger"),
    (
        "infinite noise_std",
        lambda: admm(noise_std=INF),
        "noise_std",
        "inf",
        "0",
    ),
    ("noise in a new place", lambda: Noise(1.0, "air"), "place", "'air'", "'block'"),
    ("step_size 0", lambda: sgd(step_size=0), "step_size", "0", "positive"),
    ("step sizes", lambda: sgd(step_size=[0.1, 0.2]), "step_size", "2 entries for 4", "one per step"),
    (
        "dp_cd without smoothness",
        lambda: methods.dp_cd(hp.Problem(X, Y), 4, noise_std=0.1),
        "step_size",
        "not given",
        "Pass step_size=g",
    ),
    ("tail_average 0", lambda: admm(tail_average=0), "tail_average", "0", "fraction in (0, 1]"),
    ("tail_average 2", lambda: admm(tail_average=2), "tail_average", "2", "fraction in (0, 1]"),
    ("tolerance 0", lambda: private(tolerance=0.0), "tolerance", "0.0", "positive"),
    ("clip_residual", lambda: admm(clip_residual=-1), "clip_residual", "-1", "positive"),
    ("radius", lambda: methods.anchored_admm(LASSO, 4, 1.0, noise_std=0.1, radius=0), "radius", "0", "positive"),
    ("ridge_in_loss", lambda: admm(ridge_in_loss="yes"), "ridge_in_loss", "'yes'", "True or False"),
    ("lattice as text", lambda: sgd(lattice="yes"), "lattice", "'yes'", "True or False"),
    ("no lattice here", lambda: admm(lattice=True), "lattice", "True", "Use dp_sgd, dp_cd"),
    ("tiny clip", lambda: sgd(hp.Problem(X, Y, row_norm=1.0, clip=1e-300), lattice=True), "bounded", "1e-300", "clip"),
    ("no problem", lambda: sgd(problem=X), "problem", "ndarray", "hushpoint.Problem"),
    # who moves
    ("sample too large", lambda: federated(sample_size=9), "sample_size", "9", "from 1 to the number of items, 8"),
    ("no sample", lambda: sgd(sample_size=0), "sample_size", "0", "from 1 to the number of items, 8"),
    ("sample_prob 0", lambda: federated(sample_prob=0), "sample_prob", "0", "(0, 1]"),
    ("sample_prob 1.5", lambda: sgd(sample_prob=1.5), "sample_prob", "1.5", "(0, 1]"),
    ("two samples", lambda: federated(sample_size=3, sample_prob=0.5), "sample_size", "3", "one of them"),
    ("two samples, sgd", lambda: sgd(sample_size=3, sample_prob=0.5), "sample_prob", "0.5", "one of them"),
    ("unknown schedule", lambda: admm(schedule="weekly"), "schedule", "'weekly'", "'cyclic'"),
    ("subset too large", lambda: admm(schedule=9), "schedule", "9", "from 1 to 8"),
    ("schedule 2.5", lambda: admm(schedule=2.5), "schedule", "2.5", "'permuted'"),
    ("cap 0", lambda: federated(participation_cap=0), "participation_cap", "0", "at least 1"),
    ("cap of a walk", lambda: walk(participation_cap=1.5), "participation_cap", "1.5", "whole number"),
    ("cap of a schedule", lambda: EveryBlock(3, cap=0), "cap", "0", "at least 1"),
    ("disconnected", lambda: walk(graph=nx.Graph([(0, 1), (2, 3), (4, 5), (6, 7)])), "graph", "not conn", "Add edges"),
    ("wrong number of nodes", lambda: walk(graph=nx.cycle_graph(5)), "graph", "5 nodes for 8", "every user a node"),
    ("unknown graph", lambda: walk(graph="ring"), "graph", "'ring'", "networkx"),
    ("a matrix as graph", lambda: walk(graph=np.eye(8)), "graph", "ndarray", "networkx"),
    ("directed", lambda: walk(graph=nx.cycle_graph(8, nx.DiGraph)), "graph", "directed", "undirected"),
    ("nodes of two kinds", lambda: walk(graph=nx.Graph([(0, "a")])), "graph", "different kinds", "Number them"),
    ("a one-way list", lambda: walk(graph=[[1], [2], [3], [4], [5], [6], [7], [0]]), "graph", "one way", "neighbours"),
    ("a list to nowhere", lambda: walk(graph=[[9]] * 8), "graph", "nowhere", "neighbours"),
    ("a list of numbers", lambda: walk(graph=[1, 2, 3]), "graph", "lists", "neighbours"),
    ("unknown noise", lambda: federated(noise="server"), "noise", "'server'", "'clients'"),
    ("sum without a bound", lambda: federated(noise="sum"), "clip_residual", "None", "Pass clip_residual=C"),
    # A, B, c, penalty, and methods that need more than the problem has
    ("rank-deficient A", lambda: private(A=np.ones((4, 3))), "A", "rank 1", "full column rank"),
    ("wide A", lambda: private(A=np.ones((4, 5))), "A", "5 columns", "one column a feature"),
    ("low A", lambda: private(A=np.eye(3)[:2]), "A", "rank 2", "full column rank"),
    ("1-d A", lambda: private(A=np.ones(3)), "A", "(3,)", "finite table"),
    ("NaN in A", lambda: private(A=np.diag([1, 1, NAN])), "A", "not finite", "finite table"),
    ("text A", lambda: private(A=[["a"] * 3] * 3), "A", "numbers", "array of numbers"),
    ("wrong-shaped B", lambda: private(B=np.eye(4)), "B", "4 rows", "Pass as many"),
    ("rank-deficient B", lambda: private(B=np.ones((3, 2))), "B", "rank 1", "full column rank"),
    ("wrong-shaped c", lambda: private(c=np.ones(4)), "c", "(4,)", "3 finite numbers"),
    ("NaN in c", lambda: private(c=[1.0, NAN, 0.0]), "c", "(3,)", "finite numbers"),
    ("text c", lambda: private(c=["a", "b", "c"]), "c", "", "array of numbers"),
    ("empty A", lambda: private(A=np.ones((0, 3))), "A", "(0, 3)", "finite table"),
    ("penalty by name", lambda: private(penalty="l1"), "penalty", "'l1'", "L1(0.1)"),
    (
        "two penalties",
        lambda: methods.private_admm(LASSO, 4, 1.0, noise_std=0.1, penalty=regularizers.L1(0.2)),
        "penalty",
        "L1(strength=0.2)",
        "Pass the penalty alone",
    ),
    ("dp_cd, group L1", lambda: methods.dp_cd(GROUPED, 4, noise_std=0.1), "regularizer", "GroupL1", "Use L1"),
    (
        "kink, whole data",
        lambda: methods.private_admm(ABSOLUTE, 4, 1.0, noise_std=0.1),
        "loss",
        "'absolute'",
        "hp.losses.Huber",
    ),
    (
        "walk with L1",
        lambda: methods.stateless_walk(LASSO, 4, 1.0, noise_std=0.1),
        "regularizer",
        "L1",
        "or L2 without",
    ),
    # running
    ("unknown kernel", lambda: admm().run(seed=0, kernel="fast"), "kernel", "'fast'", "'plain'"),
    ("negative seed", lambda: admm().run(seed=-1), "seed", "-1", "non-negative integer"),
    ("seed 1.5", lambda: admm().run(seed=1.5), "seed", "1.5", "non-negative integer"),
    ("unknown history", lambda: admm().run(seed=0, history="objective"), "history", "'objective'", "'models'"),
    ("state of another plan", lambda: admm(gamma=3.0).run(state=STATE), "state", "another plan", "steps may differ"),
    ("a state that is none", lambda: admm().run(state=STATE.blocks), "state", "ndarray of shape (8, 1)", "State.load"),
    ("callback", lambda: admm().run(seed=0, callback=3), "callback", "3", "callback(step, model)"),
    (
        "declared",
        lambda: admm(problem=hp.Problem.declared(4, 2, clip=1.0)).run(seed=0),
        "rows",
        "declared",
        "Bind data with plan.on",
    ),
    ("other facts", lambda: admm().on(RIDGE), "problem", "other facts", "Make the plan again"),
    # certificates
    ("negative lipschitz", lambda: Certificate(-1.0), "lipschitz", "-1.0", ">= 0"),
    ("infinite sensitivity", lambda: Certificate(1.0, {"user": INF}), "sensitivity", "not a finite", "Leave it out"),
    ("unknown unit", lambda: Certificate(1.0, {"row": 1.0}), "unit", "'row'", "'record'"),
]


@pytest.mark.parametrize(
    ("call", "argument", "value", "remedy"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_bad_input_is_refused_with_argument_value_and_remedy(call, argument, value, remedy):
    # input that crashes deep inside with a message about something else, or that is taken and gives nonsense
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the three parts are checked below
        call()
    message = str(refusal.value)
    assert re.search(rf"\b{argument}\b", message)
    assert value in message
    assert remedy in message
    assert message.rstrip().endswith(".")  # a sentence


def test_the_table_is_long_enough():
    # cases lost in an edit, or two under one name
    assert len({case[0] for case in CASES}) == len(CASES) >= 40


# ---------------------------------------------------------------------------------------------- nothing of the data

SECRET, WORD = 987654.321, "topsecret"


def secret_table():
    table = RNG.normal(size=(8, 3))
    table[:, 0] = SECRET
    return table


def secret_calls():
    numbers = secret_table()
    targets = np.full(8, SECRET)
    words = np.array([WORD, "b"] * 4)
    mixed = pd.DataFrame({"a": targets, "b": words})
    problem = hp.Problem(numbers, targets, clip=1.0)
    named = hp.Problem(numbers, targets, clip=1.0, groups=words)
    broken = numbers.copy()
    broken[1, 1] = NAN
    plan = methods.centralized_admm(problem, 3, 1.0, noise_std=0.1)
    state = plan.run(seed=0).state
    return {
        "NaN": lambda: hp.Problem(broken, targets),
        "sparse NaN": lambda: hp.Problem(scipy.sparse.csr_array(broken), targets),
        "text": lambda: hp.Problem(mixed, targets),
        "text only": lambda: hp.Problem(words[:, None], targets),
        "text target": lambda: hp.Problem(numbers, words),
        "short target": lambda: hp.Problem(numbers, targets[:-1]),
        "infinite target": lambda: hp.Problem(numbers, np.where(np.arange(8) == 3, INF, SECRET)),
        "one class": lambda: hp.Problem(numbers, [WORD] * 8, "logistic"),
        "many classes": lambda: hp.Problem(numbers, [f"{WORD}{i}" for i in range(8)], "logistic"),
        "mixed labels": lambda: hp.Problem(numbers, pd.Series([WORD, SECRET] * 4), "logistic"),
        "mixed groups": lambda: hp.Problem(numbers, targets, groups=pd.Series([WORD, SECRET] * 4)),
        "missing groups": lambda: hp.Problem(numbers, targets, groups=[WORD, None] * 4),
        "short groups": lambda: hp.Problem(numbers, targets, groups=words[:-1]),
        "3-d": lambda: hp.Problem(numbers[None], targets),
        # arguments in the wrong place are data too
        "target as row_norm": lambda: hp.Problem(numbers, targets, row_norm=targets),
        "target as clip": lambda: hp.Problem(numbers, targets, clip=targets.tolist()),
        "target as weights": lambda: hp.Problem(numbers, targets, weights=targets),
        "labels as weights": lambda: hp.Problem(numbers, targets, weights=words.tolist()),
        "groups as regularizer": lambda: hp.Problem(numbers, targets, "squared", words),
        "frame as regularizer": lambda: hp.Problem(numbers, targets, "squared", mixed),
        "target as intercept": lambda: hp.Problem(numbers, targets, fit_intercept=targets),
        "data as problem": lambda: methods.dp_sgd(numbers, 3, 0.1, noise_std=0.1),
        "target as steps": lambda: methods.dp_sgd(problem, targets, 0.1, noise_std=0.1),
        "data as gamma": lambda: methods.centralized_admm(problem, 3, numbers, noise_std=0.1),
        "data as noise_std": lambda: methods.centralized_admm(problem, 3, 1.0, noise_std=numbers),
        "data as relaxation": lambda: methods.centralized_admm(problem, 8, 1.0, numbers, noise_std=0.1),
        "words as schedule": lambda: methods.centralized_admm(problem, 3, 1.0, noise_std=0.1, schedule=words),
        "data as penalty": lambda: methods.private_admm(problem, 3, 1.0, noise_std=0.1, penalty=numbers),
        "data as graph": lambda: methods.decentralized_admm(problem, 3, 1.0, noise_std=0.1, graph=numbers.tolist()),
        "wrong model": lambda: problem.objective(numbers[0, :2]),
        "state as callback": lambda: plan.run(seed=0, callback=state.blocks),
        "blocks as state": lambda: plan.run(seed=0, state=numbers),
        "another plan": lambda: methods.centralized_admm(problem, 3, 2.0, noise_std=0.1).run(state=state),
        "other users": lambda: methods.federated_admm(named, 3, 1.0, noise_std=0.1, sample_size=5),
        "other facts": lambda: plan.on(named),
    }


@pytest.mark.parametrize("name", secret_calls())
def test_no_message_tells_of_the_data(name):
    # messages go to logs and bug reports, where data must not be; conversions quote the entry that they stumble over
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - any refusal, it is its words that matter
        secret_calls()[name]()
    error = refusal.value
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    for trace in ("987654", "9.87", WORD):
        assert trace not in str(error)
    assert len(str(error)) < 400


def test_the_printed_form_of_a_problem_and_plan_tells_nothing_of_the_data():
    # a repr that prints arrays ends in logs as well
    problem = hp.Problem(secret_table(), [WORD, "b"] * 4, "logistic", groups=[WORD, "c", "d", "e"] * 2, row_norm=1.0)
    plan = methods.federated_admm(problem, 3, 1.0, noise_std=0.1)
    result = plan.run(seed=0)
    for text in (repr(problem), repr(plan), plan.to_json(), str(result.guarantee), repr(result.state.fingerprint)):
        for trace in ("987654", "9.87", WORD):
            assert trace not in text


def test_the_printed_form_is_the_same_for_all_data_with_the_same_facts():
    # a mean, a count of a class or a longest row in a log: statistics of the data without noise
    one, other = (
        hp.Problem(table, np.repeat([WORD, "b"], [count, 8 - count]), "logistic", groups=[0, 1, 2, 3] * 2, row_norm=1.0)
        for table, count in ((secret_table(), 2), (-secret_table(), 5))
    )
    assert repr(one) == repr(other)
    one_plan, other_plan = (methods.federated_admm(problem, 3, 1.0, noise_std=0.1) for problem in (one, other))
    assert one_plan.to_json() == other_plan.to_json()
    assert one_plan.fingerprint() == other_plan.fingerprint()
