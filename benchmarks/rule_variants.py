"""What of the cross-validated gradient matters: its strength, averaging, pooling and how groups are drawn.

    python -m benchmarks.rule_variants --jobs 2      # half an hour of a core; the same command goes on

Digits, each variant with its own learning rate, as in ``benchmarks.noisy_labels``. Records are copied to
``results/rule-variants``.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks import noisy_labels
from benchmarks.keeping import INTERRUPTED, run_and_keep
from benchmarks.record_tables import RESULTS, markdown_table
from deepbilevel_lab.records import SweepRecord, read_file
from deepbilevel_lab.sweeps.tuning import tuned_methods

VARIANTS: Mapping[str, str] = {
    "uniform": "equal weights",
    "uniform[group.draw=stratified]": "equal weights, stratified groups",
    "bilevel": "bilevel",
    "bilevel[group.draw=stratified]": "bilevel, stratified groups",
    "cross-validated": "strength 1, one group",
    "cross-validated[group.draw=stratified]": "strength 1, one group, stratified groups",
    "cross-validated[method.block=filter]": "strength 1, one group, pooled per filter",
    "cross-validated[method.momentum=0.9]": "strength 1, averaged over 10 groups",
    "cross-validated[method.strength=0.125]": "strength 1/8, one group",
    "cross-validated-averaged": "strength 1/8, averaged over 10 groups",
    "cross-validated-averaged[group.draw=stratified]": "strength 1/8, averaged over 10 groups, stratified groups",
    "cross-validated-averaged[method.momentum=0.98]": "strength 1/8, averaged over 50 groups",
    "cross-validated-averaged[method.strength=0.0125]": "strength 1/80, averaged over 10 groups",
}
SETTINGS = ("digits-uniform40", "digits-clean")
_RECORDS = RESULTS / "rule-variants"


def table() -> str:
    """Return the test accuracy of the last epoch, mean and standard deviation over seeds, of the committed records."""
    by_setting = {
        setting: {each.row: each for each in tuned_methods(read_file(SweepRecord, path))}
        for setting in SETTINGS
        if (path := _RECORDS / f"{setting}.json").is_file()
    }
    rows = [
        [words, *(noisy_labels.last_epoch(each[name]) if name in each else "-" for each in by_setting.values())]
        for name, words in VARIANTS.items()
    ]
    return markdown_table(["", *(noisy_labels.SHOWN[setting.partition("-")[2]] for setting in by_setting)], rows)


def main() -> None:
    """Make the runs and keep their records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/rule-variants"), help="the folder of the runs")
    parser.add_argument("--jobs", type=int, default=1, help="how many runs side by side")
    parser.add_argument("--seeds", default="0-2", help="the first one chooses the learning rate")
    given = parser.parse_args()
    codes = [0]
    for setting in SETTINGS:
        words = noisy_labels.command(setting, tuple(VARIANTS), setting, given.out / setting, given.jobs, given.seeds)
        codes.append(run_and_keep(words, given.out / setting / f"sweep-{setting}.json", _RECORDS / f"{setting}.json"))
        if codes[-1] == INTERRUPTED:
            break
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
