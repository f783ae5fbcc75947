"""The shape of every method: release a public point, move where the data is, combine what arrives."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hushpoint._described import held, is_ours
from hushpoint._types import Array, Indices
from hushpoint.certificates import Certificate
from hushpoint.operators.whole import is_whole_within
from hushpoint.problem import Facts

if TYPE_CHECKING:
    from hushpoint.kernels import Kernel
    from hushpoint.plan import Plan

LOSS_IS_ZERO = "the unit's loss is 0"


class Operator(ABC):
    """A non-expansive map R over blocks, split into what happens where.

    One step is ``z = release(shared)``; for every chosen block ``block, message = local(data, chosen, block, z, ...)``
    where the data is; ``shared = combine(shared, sum of messages, ...)`` where the messages arrive, which needs only
    their sum. ``chosen`` indexes the items of ``data``.

    What others need to know of an operator is a member of it. The defaults are safe: no certificate, no compiled loop,
    no part in a federation. One from outside states ``blocks``, ``message_size`` and, if it keeps something where the
    data is, ``block_size``; ``places`` (where it takes noise) if not in the blocks; ``samplings`` (laws of schedules
    that it works with) if not all; ``multiplicity`` (how often the message of a block counts in the sum) if not once;
    and ``needs_rows = False`` if it holds its data itself.
    """

    name: str = "operator"
    places: tuple[str, ...] = ("block",)  # where it takes noise
    samplings: tuple[str, ...] | None = None  # schedules that it works with; None: all
    facts: Facts | None = None  # of the problem that it was made for
    zero_out: str = LOSS_IS_ZERO  # what zero-out does to an item
    adjacency: Literal["replace-one", "zero-out"] = "replace-one"  # which one is meant where none is named
    watcher: Literal["curator", "server", "peers"] = "curator"  # who sees the messages that blocks send
    federates: bool = False  # whether its steps are rounds between a server and sites that hold an item each
    blocks: int = 1
    block_size: int = 0  # 0: nothing is kept where the data is
    message_size: int = 0
    needs_rows: bool = True
    takes_many_points: bool = False  # whether release, local, combine and model take one point per row
    rests_with_noise: bool = False  # at its participation cap a block still adds noise
    chunk: int | None = None  # blocks to move at a time, to keep temporaries small; None: all
    tolerance: float = 0.0  # stated distance of a computed prox from the exact one
    multiplicity: NDArray[Any] | None = None  # how often the message of a block counts in the sum; None: once
    unit: float | None = None  # step of the lattice that its messages are on: int64, summed exactly; None: real numbers

    def identity(self) -> dict[str, Any]:
        """All that the operator is made of; how many blocks it moves at a time is not part of it."""
        return {name: value for name, value in held(self).items() if name != "chunk"}

    def cut(self, total: NDArray[Any]) -> NDArray[Any]:
        """What the noise is added to: the sum of the messages, or on a lattice what is left of it on a coarser one."""
        return total

    def nothing(self) -> NDArray[Any]:
        """The sum of no messages."""
        return np.zeros(self.message_size, dtype=np.float64 if self.unit is None else np.int64)

    def prepare(self, rows: Any) -> Any:
        """What ``local`` needs of the ``Rows`` (None unless it needs rows), computed once."""
        return rows

    def start(self) -> tuple[Array, Array]:
        """The public start: what is shared, and the blocks."""
        return np.zeros(self.message_size), np.zeros((self.blocks, self.block_size))

    def release(self, shared: Array) -> Array:
        """The public point that the next step starts from."""
        return shared

    @abstractmethod
    def local(
        self, data: Any, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Array]:
        """New blocks and messages of the chosen blocks, a row each; ``kick`` is noise plus error, added to R."""

    def move(
        self,
        data: Any,
        chosen: Indices | slice,
        block: Array,
        z: Array,
        relaxation: float,
        kick: Array | None,
        multiplicity: Array | None,
    ) -> tuple[Array, Array]:
        """New blocks and the sum of the messages, each counted with its multiplicity."""
        block, messages = self.local(data, chosen, block, z, relaxation, kick)
        return block, messages.sum(axis=0) if multiplicity is None else multiplicity @ messages

    def told(self, data: Any, block: Array, z: Array, relaxation: float, times: Array | None) -> tuple[Array, Array]:
        """What a holder of some items adds to a sum of which nobody sees the parts, and its blocks afterwards.

        ``times`` is how often the message of each of them counts.
        """
        block, total = self.move(data, slice(None), block, z, relaxation, None, times)
        return block, self.cut(total)

    def learned(self, shared: Array, z: Array, total: Array, relaxation: float) -> Array:
        """What is shared after such a sum, noise included, was opened: the public point next."""
        return self.combine(shared, total, None, relaxation)

    @abstractmethod
    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        """What is shared after the messages, summed with their multiplicities, have arrived."""

    def kernel(self, plan: Plan) -> Kernel | None:
        """A faster loop with the same law for this plan, or None."""
        return None

    def is_plausible(self, message: Array, block: Array, z: Array, relaxation: float, noise_std: float) -> bool:
        """Whether an item can honestly have sent a message from its block and the public point."""
        sensitivity = self.certificate(relaxation).sensitivity.get(("user", "zero-out"), math.inf)
        counted = 1.0 if self.multiplicity is None else self.multiplicity
        longest = float(np.max(np.asarray(sensitivity) / counted))
        if self.unit is None or math.isinf(longest):
            return is_within(message, longest)
        return is_whole_within(message.tolist(), math.ceil(longest / self.unit))

    def reach(self) -> float:
        """How long points and blocks from an untrusted server may be for the guarantee to hold as stated."""
        return math.inf

    def without_data(self) -> Any:
        """What ``prepare`` would give for an item whose loss is 0, to move where its own cannot; None: nothing."""
        return None

    def coarser(self, bits: int) -> Operator:
        """The same operator on a lattice whose step is ``2**bits`` times as large; only for one on a lattice."""
        raise NotImplementedError(f"{type(self).__name__} is on no lattice")

    def unclipped(self) -> Operator:
        """The same operator without the clipping of its own; losses are truncated by the rows."""
        return self

    def printed_letters(self) -> dict[str, float] | None:
        """The letters of the paper's printed bounds, where this is an operator that they speak of."""
        return None

    def model(self, z: Array) -> Array:
        """The model at a public point."""
        return z

    def extra_objective(self, model: Array) -> float:
        """What the operator minimises beyond the objective of the problem."""
        return 0.0

    def step_lipschitz(self, relaxation: float) -> float | None:
        """Lipschitz constant of the relaxed map when every block moves."""
        tau = self.certificate(relaxation).lipschitz
        return None if tau is None else 1 - relaxation * (1 - tau)

    def certificate(self, relaxation: float) -> Certificate:
        """The promises of one step."""
        return Certificate(None, missing=(f"{type(self).__name__} has no certificate. Write certificate().",))

    def own_certificate(self, relaxation: float) -> Certificate:
        """The certificate, unless a subclass changed what a step does and kept what its parent promised of it.

        To promise the same of other code is to say so: ``certificate = Parent.certificate`` in the body of the class.
        """
        stated = self.certificate(relaxation)
        for kind in type(self).__mro__:
            if "certificate" in vars(kind):
                break
            changed = [name for name in _BEHAVIOUR if name in vars(kind)]
            if changed and stated.sensitivity and not is_ours(kind):
                told = f"{kind.__name__} changes {', '.join(changed)} and states no certificate. Write certificate()."
                return Certificate(None, missing=(told,), theorem=stated.theorem)
        return stated


_BEHAVIOUR = (
    *("prepare", "start", "release", "local", "move", "combine", "model", "places", "multiplicity"),
    *("cut", "told", "learned", "coarser", "kernel"),  # on a lattice, and of sites
    *("looked_at", "stepped"),  # of a descent
)


def is_within(vector: Array, length: float) -> bool:
    """Whether a vector is no longer than that, but for rounding."""
    with np.errstate(over="ignore"):
        return float(np.linalg.norm(vector)) <= length * (1 + 1e-9)


class FixedPoint(Operator):
    """One block and no split: write ``apply``, and ``certificate`` if there is to be a guarantee.

    This is the class to start from for an operator of one's own; the data, if any, is held by the operator itself.
    """

    name = "fixed point"
    needs_rows = False

    def __init__(self, size: int) -> None:
        self.block_size = self.message_size = size

    @abstractmethod
    def apply(self, point: Array) -> Array:
        """R at a point."""

    def local(
        self, data: Any, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Array]:
        target = self.apply(block[0])[None, :]
        message = relaxation * (target - block if kick is None else target + kick - block)
        return block + message, message

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        return shared + total
