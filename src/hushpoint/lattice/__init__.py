"""Noise on the lattice of the integers, drawn exactly: rounded normals and discrete Gaussians."""

from __future__ import annotations

from hushpoint.lattice.draws import discrete_gaussians, rounded_normals
from hushpoint.lattice.normal import WIDEST

__all__ = ["WIDEST", "discrete_gaussians", "rounded_normals"]
