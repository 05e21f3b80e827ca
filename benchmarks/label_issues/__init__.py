"""How well are wrong labels found? The audit of one training run beside cleanlab's five, AUM and losses.

    python -m benchmarks.label_issues --out runs/label-issues            # hours; the same command goes on
    python -m benchmarks.label_issues --only 'digits-*' --seeds 0
    python -m benchmarks.label_issues --table                         # what docs/audit-results.md shows, from results/

All train the same network on the same images for as long and at the same learning rate, and their rankings are measured
alike. Then plain SGD is trained again without the labels that were flagged, and with the suggested ones instead.
CIFAR-10 is looked for in ``DEEPBILEVEL_DATA``; cleanlab comes with ``pip install '.[bench]'``.
"""
