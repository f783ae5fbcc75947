"""The tests run alike wherever they are started: same examples of hypothesis, no deadlines, Ctrl-C as at a terminal."""

import signal

from hypothesis import settings

signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's shell ignores it for what runs in the background

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")
