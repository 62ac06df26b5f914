"""A network that takes its process with it, as running out of memory does."""

import os
import signal


def network(dim):
    os.kill(os.getpid(), signal.SIGKILL)
