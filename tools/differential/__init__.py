"""Let the real programs and Moorage decide on the same random input, and shrink each disagreement to the smallest one.

``python -m tools.differential scheduler --seed 7 --count 1000 --release 1.37`` compares with kube-scheduler, whose scheduling
framework ``oracles/verdicts`` runs.
"""
