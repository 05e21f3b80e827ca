"""Many runs that belong together: what is run, where, and what came of it, each without knowing the others.

*What*: named methods (``named_methods.py``), as people write them (``expressions.py``), become trials, which are specs
with a label (``trials.py``). *Where*: an executor; ``local.py`` starts processes on this machine, ``on_ray.py`` on a
cluster. *What came of it*: outcomes (``trials.py``), their record (``sweep.py``) and table (``table.py``).
``comparison.py`` makes sweeps that are fair to every method.
"""
