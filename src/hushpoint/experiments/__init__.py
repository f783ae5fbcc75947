"""Experiments: each a function that returns a table."""
