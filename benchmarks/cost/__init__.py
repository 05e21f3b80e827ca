"""How fast, and how much memory: our rules beside plain loops and beside what one would install instead.

``make bench``, or ``python -m benchmarks.cost`` from a clone. ``contenders.py`` says who is compared, ``measuring.py``
what is measured; ``docs/performance.md`` how to read it.
"""
