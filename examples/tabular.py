"""A table with wrong labels, from the file to predictions for rows: plain SGD beside two rules that compare.

569 tumours with 30 measurements (scikit-learn ships them); 30 % of the training labels are flipped. docs/tables.md has
the results of five seeds and 50 epochs.
"""

import csv
import tempfile
from dataclasses import replace
from pathlib import Path

from sklearn.datasets import load_breast_cancer

from deepbilevel.rules.catalog import find_rule
from deepbilevel_lab.data.table import ColumnsSpec
from deepbilevel_lab.noise import parse_noise
from deepbilevel_lab.training import RunFolder, default_spec, load_model, train
from deepbilevel_lab.training.prediction import Predictor, predict_table

METHODS = ("sgd", "bilevel", "cross-validated")


def main(epochs: int = 20) -> dict[str, float]:
    """Train with each method, print how it did, and return the test accuracies in percent."""
    with tempfile.TemporaryDirectory() as folder:
        table, runs = write_table(Path(folder) / "tumours.csv"), Path(folder) / "runs"
        # The columns' kinds, scales and group sizes are found in the table itself.
        spec = default_spec("table", path=str(table), columns=ColumnsSpec("diagnosis", ignore=("patient",)))
        spec = replace(spec, epochs=epochs, evaluate_every=epochs, mixing=None, noise=parse_noise("uniform:0.3"))
        accuracy: dict[str, float] = {}
        for name in METHODS:
            run = replace(spec, method=find_rule(name)())
            record = train(run, out=runs, data_dir=Path(folder))
            accuracy[name] = record.figures["test"] or 0.0
            print(f"{name:16} {accuracy[name]:.1f} % of the test labels, which are clean")

        predictor = Predictor(load_model(RunFolder.of(run, runs).path))
        print("the first rows, as the last network sees them:")
        for (row, probabilities), _ in zip(predict_table(predictor, table), range(3), strict=False):
            label = predictor.class_names[int(probabilities.argmax())]
            print(f"  row {row.place}: {label}, {probabilities.max():.2f} (given: {row.given})")
    return accuracy


def write_table(path: Path) -> Path:
    """Write the tumours as anybody's table: a column each, a number for the patient, and a class by its name."""
    data = load_breast_cancer()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", *data.feature_names, "diagnosis"])
        for number, (row, label) in enumerate(zip(data.data, data.target, strict=True)):
            writer.writerow([number, *row, data.target_names[label]])
    return path


if __name__ == "__main__":
    main()
