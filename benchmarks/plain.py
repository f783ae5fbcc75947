"""The methods as a careful researcher would write them: NumPy, one record at a time."""

from __future__ import annotations

import numpy as np


def lasso_prox(row, target, point, gamma):
    """Prox of (a.x - b)^2/2 at a point, by Sherman and Morrison."""
    return point - gamma * row * (row @ point - target) / (1 + gamma * row @ row)


def soft_threshold(point, level):
    return np.sign(point) * np.maximum(np.abs(point) - level, 0)


def centralized_step(X, y, u, gamma, relaxation, sigma, strength, rng):
    """One step of Algorithm 2 for the Lasso; u is changed in place."""
    z = soft_threshold(u.mean(axis=0), gamma * strength)
    for i in range(len(y)):
        x = lasso_prox(X[i], y[i], 2 * z - u[i], gamma)
        u[i] += 2 * relaxation * (x - z + 0.5 * rng.normal(0, sigma, size=len(z)))
    return z


def federated_round(X, y, u, zhat, size, gamma, relaxation, sigma, strength, rng):
    """One round of Algorithm 3, carrying zhat; returns the new zhat."""
    z = soft_threshold(zhat, gamma * strength)
    for i in rng.choice(len(y), size=size, replace=False):
        x = lasso_prox(X[i], y[i], 2 * z - u[i], gamma)
        change = 2 * relaxation * (x - z + 0.5 * rng.normal(0, sigma, size=len(z)))
        u[i] += change
        zhat = zhat + change / len(y)
    return zhat


def hop(X, y, u, zhat, gamma, relaxation, sigma, strength, rng):
    """One hop of Algorithm 4 on the complete graph; returns the new zhat."""
    return federated_round(X, y, u, zhat, 1, gamma, relaxation, sigma, strength, rng)


def gradient_step(X, y, z, step, noise_std, strength, rng):
    """One step of noisy proximal gradient descent, gradients clipped one by one at 1."""
    total = np.zeros_like(z)
    for i in range(len(y)):
        gradient = X[i] * (X[i] @ z - y[i])
        total += gradient / max(1.0, np.linalg.norm(gradient))
    return soft_threshold(z - step * (total / len(y) + rng.normal(0, noise_std, size=len(z))), step * strength)
