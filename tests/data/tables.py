"""Small tables for tests."""

import csv

import numpy as np


def write_table(path, rows, header):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def write_patients(path, num_rows=240, seed=0):
    """Write rows of which a number and a category say whether somebody is ill; some cells are missing."""
    random = np.random.RandomState(seed)
    rows = []
    for number in range(num_rows):
        ill = random.rand() < 0.5
        pulse = random.normal(90 if ill else 60, 8)
        cough = random.choice(["often", "never"], p=[0.8, 0.2] if ill else [0.2, 0.8])
        rows.append(
            [
                f"p{number:04}",
                "" if number % 17 == 0 else f"{pulse:.2f}",
                "NA" if number % 23 == 0 else cough,
                "clinic",
                "ill" if ill else "well",
            ]
        )
    return write_table(path, rows, ["patient_id", "pulse", "cough", "place", "state"])


WORDS = {
    "sport": ["match", "goal", "team", "player", "coach", "league", "season", "win", "score", "ball"],
    "food": ["soup", "bread", "salt", "oven", "butter", "plate", "cook", "dinner", "pepper", "onion"],
}


def write_notes(path, num_rows=120, seed=0):
    """Write short texts of two kinds; every thirtieth is empty."""
    random = np.random.RandomState(seed)
    rows = []
    for number in range(num_rows):
        kind = ("sport", "food")[number % 2]
        words = [*random.choice(WORDS[kind], 6), *random.choice(["the", "a", "and", "of"], 4)]
        text = "" if number % 30 == 29 else " ".join(random.permutation(words))
        rows.append([number, text, kind])
    return write_table(path, rows, ["number", "note", "kind"])
