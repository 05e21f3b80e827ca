"""The command; see the package."""

import argparse
import fnmatch
import json
import sys
from pathlib import Path

import torch

import benchmarks.label_issues as package
from benchmarks.label_issues.measuring import RESULTS, SETTINGS, WAYS, run, tables
from deepbilevel_lab.cli.resolving import parse_seeds
from deepbilevel_lab.replacement import write_text


def main() -> None:
    """Run what is wanted and not yet there."""
    parser = argparse.ArgumentParser(description=package.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="settings whose names match, as in 'cifar10-*'")
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the records")
    parser.add_argument("--ways", default=",".join(WAYS), help="of training, to watch; sgd is always among them")
    parser.add_argument("--table", action="store_true", help="print what is committed and stop")
    given = parser.parse_args()
    if given.table:
        print(tables())
        return
    torch.set_num_threads(1)  # so that two commands share two cores
    for seed in parse_seeds(given.seeds):
        for name in fnmatch.filter(SETTINGS, given.only):
            path = given.out / f"{name}-seed{seed}.json"
            if path.is_file():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            found = run(SETTINGS[name], seed, [way for way in WAYS if way == "sgd" or way in given.ways.split(",")])
            write_text(path, json.dumps(found, indent=1) + "\n")
            print(path, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
