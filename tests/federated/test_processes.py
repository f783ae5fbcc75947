"""A process that ends when another one does."""

import subprocess
import sys
import time

from hushpoint.federated.processes import is_alive

# The main thread waits for ever, as Flower's does for a reply that no longer comes: a signal raised by another thread
# of the process does not wake it.
WAITS = """
import sys, threading
from hushpoint.federated.processes import end_with
end_with(int(sys.argv[1]))
print("waiting", flush=True)
threading.Lock().acquire() and threading.Event().wait()
"""


def test_a_process_that_waits_for_ever_ends_with_the_one_it_depends_on():
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    waiting = subprocess.Popen([sys.executable, "-c", WAITS, str(other.pid)], stdout=subprocess.PIPE)
    try:
        assert waiting.stdout.readline() == b"waiting\n"
        time.sleep(1)
        assert waiting.poll() is None
        other.kill()  # nobody waits for it yet: it is a zombie, which must not count as alive
        assert waiting.wait(timeout=300) == 1
        assert not is_alive(other.pid)
    finally:
        for process in (other, waiting):
            process.kill()
            process.communicate()
