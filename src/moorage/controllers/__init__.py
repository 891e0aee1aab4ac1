"""A cluster's controllers and its pretended nodes: what turns a deployment into running pods, without a machine to run them.

Each controller answers one question: given all that exists, what should be done about this one object? The answer is a
sequence of steps, worked out from documents held in memory (both in ``machinery``) and carried out by the ``manager``, which
follows the store's watches and keeps the queue of objects to look at. Nothing remembers what it did: whatever was lost or
undone in between is seen and made good the next time. So every controller can be tested by asking it, in virtual time.
"""
