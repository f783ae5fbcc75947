"""Noise on the lattice of the integers, drawn exactly: rounded normals and discrete Gaussians."""

from __future__ import annotations

from hushpoint.lattice.draws import discrete_gaussians, rounded_normals

__all__ = ["discrete_gaussians", "rounded_normals"]
