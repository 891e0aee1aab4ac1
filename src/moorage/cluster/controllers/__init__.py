"""The controllers of an embedded cluster and its simulated nodes: they turn a deployment into running pods without machines.

Each controller answers one question: given all existing objects, what must change for this one object? The answer is a
sequence of steps, computed from documents in memory (both in ``machinery``) and executed by the ``manager``, which follows the
store's watches and keeps the work queue. A controller does not depend on memory of its earlier actions: it corrects whatever
differs at the next reconcile. So every controller can be tested by calling it, in virtual time.
"""
