"""What is public of a run so far: the answers to earlier plans and the metric, and which plan is next.

The server makes it of opened sums, sites get it as bytes. Both run the chain of plans on it themselves; what a site
makes of it has to be what the server makes of it, but for the last digits, and then all go by the same bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from hushpoint._types import Array
from hushpoint.estimators.metric import Metric
from hushpoint.estimators.training import Answer, Chain, Found, Link
from hushpoint.federated.secure.trainings import Training
from hushpoint.secure.packing import Refused, pack, unpack

_CLOSE = 1e-9  # as far as two machines may differ, in units of the largest number


@dataclass(frozen=True, eq=False)
class Public:
    """The answers, and of the metric what is not in them: directions, scales, sizes, and for how long to descend."""

    answers: tuple[Answer, ...] = ()
    metric: Metric | None = None

    def to_bytes(self) -> bytes:
        """All of it."""
        answers = pack("answers", *(pack("answer", _packed(one.model), _packed(one.last)) for one in self.answers))
        return pack("public", answers, b"" if self.metric is None else _packed_metric(self.metric))

    @staticmethod
    def from_bytes(data: bytes) -> PublicBytes:
        """What ``to_bytes`` wrote, the metric as it was sent."""
        answers, metric = unpack("public", data, 2)
        pairs = (unpack("answer", one, 2) for one in unpack("answers", answers))
        found = tuple(Answer(_array(model), _array(last)) for model, last in pairs)
        return PublicBytes(found, _metric_parts(metric) if metric else None)

    @property
    def digest(self) -> bytes:
        """All of it in 32 bytes."""
        return self.digest_of(self.to_bytes())

    @staticmethod
    def digest_of(data: bytes) -> bytes:
        """That of what ``to_bytes`` wrote."""
        return hashlib.sha256(data).digest()


@dataclass(frozen=True, eq=False)
class PublicBytes:
    """The same as a site was sent it; ``metric`` are parts to compare with those of its own."""

    answers: tuple[Answer, ...] = ()
    metric: tuple[Array | None, Array, Array, Array] | None = None

    def agreed(self, own: Metric) -> Metric:
        """The metric that was sent, if one's own is the same but for the last digits; ``Refused`` otherwise."""
        if self.metric is None:
            raise Refused("the metric of the steps is missing. Nothing was done.")
        basis, scales, seconds, sizes = self.metric
        found = replace(
            own, basis=basis, scales=scales, seconds=seconds, size=float(sizes[0]), time=float(sizes[1]),
            steps=int(sizes[2]),
        )  # fmt: skip
        pairs = ((own.matrix, found.matrix), (own.seconds, seconds), (np.array([own.size, own.time]), sizes[:2]))
        if found.steps != own.steps or not all(_is_close(one, other) for one, other in pairs):
            raise Refused("the metric of the steps is not what the public results give. Nothing was done.")
        return found


class Course:
    """A chain of plans at the place that public results have brought it to."""

    def __init__(self, training: Training, sent: PublicBytes | None = None) -> None:
        self.metric: Metric | None = None
        self.found: Found | None = None
        self.answers: list[Answer] = []
        self.before: Link | None = None  # the plan that the last answer was to
        self._sent = sent
        self._links: Chain = training.links(self._agree)
        self.link: Link | None = next(self._links)
        for answer in () if sent is None else sent.answers:
            self.go_on(answer)
        self._sent = None  # what follows is new

    @property
    def place(self) -> int:
        """How many plans are behind."""
        return len(self.answers)

    @property
    def public(self) -> Public:
        """What is public so far."""
        return Public(tuple(self.answers), self.metric)

    def go_on(self, answer: Answer) -> None:
        """To the next plan, or to what is found at the end."""
        self.answers.append(answer)
        self.before = self.link
        try:
            self.link = self._links.send(answer)
        except StopIteration as end:
            self.link, self.found = None, end.value

    def _agree(self, own: Metric) -> Metric:
        self.metric = own if self._sent is None else self._sent.agreed(own)
        return self.metric


def _is_close(one: Array, other: Array) -> bool:
    if one.shape != other.shape or not np.isfinite(other).all():
        return False
    return bool(np.abs(one - other).max(initial=0.0) <= _CLOSE * np.abs(one).max(initial=0.0))


def _packed(array: Array) -> bytes:
    return np.ascontiguousarray(array, dtype="<f8").tobytes()


def _array(data: bytes) -> Array:
    if len(data) % 8:
        raise Refused("the numbers of the public results are not whole. Nothing was done.")
    return np.frombuffer(data, dtype="<f8").astype(np.float64)


def _packed_metric(metric: Metric) -> bytes:
    sizes = np.array([metric.size, metric.time, metric.steps])
    basis = b"" if metric.basis is None else _packed(metric.basis)
    return pack("metric", basis, _packed(metric.scales), _packed(metric.seconds), _packed(sizes))


def _metric_parts(data: bytes) -> tuple[Array | None, Array, Array, Array]:
    basis, scales, seconds, sizes = (_array(part) for part in unpack("metric", data, 4))
    width = len(scales)
    if len(basis) not in (0, width**2) or len(seconds) != width or len(sizes) != 3:
        raise Refused("the metric of the steps has another size. Nothing was done.")
    return (basis.reshape(width, width) if len(basis) else None), scales, seconds, sizes
