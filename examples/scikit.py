"""A table with wrong labels in scikit-learn: breast cancer, a third of the training labels flipped.

It needs `pip install '.[sklearn]'`.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deepbilevel.integrations.sklearn import NoisyLabelClassifier


def main(seeds: int = 3) -> dict[str, float]:
    """Return the mean test accuracy of several models, all trained on the same wrong labels."""
    x, y = load_breast_cancer(return_X_y=True)
    models = {
        "network, sgd": NoisyLabelClassifier("sgd", random_state=0),
        "network, bilevel": NoisyLabelClassifier("bilevel", random_state=0),
        "network, cross-validated": NoisyLabelClassifier("cross-validated", random_state=0),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    }
    scores: dict[str, list[float]] = {name: [] for name in models}
    for seed in range(seeds):
        train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.3, random_state=seed)
        wrong = np.random.default_rng(seed).random(len(train_y)) < 1 / 3
        labels = np.where(wrong, 1 - train_y, train_y)
        for name, model in models.items():
            scores[name].append(model.fit(train_x, labels).score(test_x, test_y))
    accuracies = {name: float(np.mean(each)) for name, each in scores.items()}
    for name, accuracy in accuracies.items():
        print(f"{name:25} test accuracy {accuracy:.1%}, from {min(scores[name]):.1%} to {max(scores[name]):.1%}")

    # With nothing but wrong labels at hand: the best guess agrees with 2/3 of them.
    by_hand = cross_val_score(models["network, cross-validated"], train_x, labels, cv=3)
    print(f"cross-validation on the labels as given: {by_hand.mean():.1%}")

    with tempfile.TemporaryDirectory() as folder:  # without pickle: reading the file runs no code
        path = Path(folder) / "model.safetensors"
        models["network, cross-validated"].save(path)
        same = NoisyLabelClassifier.load(path).predict(test_x) == models["network, cross-validated"].predict(test_x)
        assert same.all()
    return accuracies


if __name__ == "__main__":
    main()
