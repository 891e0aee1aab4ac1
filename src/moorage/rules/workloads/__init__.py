"""Which pods a workload has: deployments, sets and jobs, and disruption budgets.

Each controller answers one question: given all existing objects, what must change for this one object? The answer is a
sequence of steps, computed from documents in memory. A controller does not depend on memory of its earlier actions: it corrects
whatever differs the next time.
"""
