"""How k gradients become one: a file per rule, each a frozen value with its settings, its checks and its equation.

``catalog.py`` has them all by name.
"""
