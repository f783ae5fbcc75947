"""Every example of hypothesis is the same on every run, and a loaded machine makes none of them fail."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")
