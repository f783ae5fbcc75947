"""The samplers' programs once more, compiled: step for step those of plain Python, from the same words."""
