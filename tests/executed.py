"""How much work a call is, told without a clock: how many functions it calls, whatever else the machine is busy with."""

import cProfile
import sys
import time

#: Seconds for which no other thread gets the interpreter: a profile of Python 3.12 or newer counts the calls of all threads,
#: and a process that runs tests has one that talks to pytest.
ALONE_S = 10.0


def executed(call):
    """Return how many functions were called, and generators gone on with, to carry out a call that waits for nothing."""
    profile = cProfile.Profile()
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(ALONE_S)
    try:
        time.sleep(0.0001)  # for threads that wait already
        profile.runcall(call)
    finally:
        sys.setswitchinterval(usual_s)
    return sum(entry.callcount for entry in profile.getstats())
