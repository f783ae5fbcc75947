"""Operators: maps whose noisy iteration is a method, each with its certificate."""

from hushpoint.operators.admm import GeneralADMM
from hushpoint.operators.averaging import LocalSteps
from hushpoint.operators.base import FixedPoint, Operator
from hushpoint.operators.consensus import AnchoredADMM, ConsensusADMM, StatelessProx, SummedADMM
from hushpoint.operators.gradient import CoordinateGradient, Gradient
from hushpoint.operators.moments import Means, MeanSquare, SecondMoments
from hushpoint.operators.splitting import LionsMercier, Prox, ReflectedProx

__all__ = [
    "AnchoredADMM",
    "ConsensusADMM",
    "CoordinateGradient",
    "FixedPoint",
    "GeneralADMM",
    "Gradient",
    "LionsMercier",
    "LocalSteps",
    "MeanSquare",
    "Means",
    "Operator",
    "Prox",
    "ReflectedProx",
    "SecondMoments",
    "StatelessProx",
    "SummedADMM",
]
