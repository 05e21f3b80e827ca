"""The card of a trained network: what it was trained on, how, and how good it is, for people who find the file."""

import html
import re

from deepbilevel_lab.data.spec import DataSpec
from deepbilevel_lab.records import RunRecord, clean, show_figure
from deepbilevel_lab.specs import to_plain
from deepbilevel_lab.training.build import Parts
from deepbilevel_lab.training.inputs import encoding_of


def write_card(parts: Parts, record: RunRecord) -> str:
    """Return the card as Markdown."""
    spec, data = parts.spec, parts.train.data
    final, best = record.final, record.best
    if final is None or best is None:
        raise ValueError("a run is evaluated after its last epoch; without that there is nothing to put on its card")
    metric = "mean average precision" if record.metric == "mAP" else "accuracy"
    rows = [
        (f"training {data.noun}s, labels as given", "train"),
        (f"training {data.noun}s, clean labels", "train_clean"),
        (f"test {data.noun}s", "test"),
    ]
    table = [_line(label, final.figure(key), best.figure(key)) for label, key in rows if final.figure(key) is not None]
    known = "" if data.clean_labels is None else _wrong_labels(parts)
    method = ", ".join(f"{name} {value}" for name, value in to_plain(spec.method).items() if name != "kind")
    loss = "binary cross-entropy" if data.multi_label else f"loss `{spec.loss.kind}`"
    mixing = "" if spec.mixing is None else f", {spec.mixing.kind} with alpha {spec.mixing.alpha}"
    version = record.environment.packages["deepbilevel"]
    noun, encoding = data.noun, encoding_of(data)
    task = {"image": "image-classification", "row": "tabular-classification"}.get(noun, "classification")
    if encoding is not None and encoding.text is not None:
        task = "text-classification"
    return "\n".join(
        [
            "---",
            "library_name: deepbilevel",
            f"tags: [{task}, noisy-labels, deep-bilevel-learning]",
            "---",
            f"# {spec.name}",
            "",
            f"{spec.network.name} with {record.parameters:,} parameters, trained by deepbilevel {version}; "
            f"run `{spec.id}`.",
            "",
            "## Trained on",
            "",
            f"- {len(data):,} {noun}s of `{spec.data.name}` ({spec.data.train_split}), {data.num_classes} classes: "
            f"{_some(data.class_names)}.",
            f"- Labels: {spec.data.labels or 'as published'}"
            + (f", made wrong on purpose by the noise `{spec.noise}`" if spec.noise else "")
            + f".{known}",
            _inputs(parts),
            "",
            "## How",
            "",
            f"Method `{spec.method.kind}`" + (f" ({method})" if method else "") + f", {loss}{mixing}, groups of "
            f"{spec.group.num_batches} x {spec.group.batch_size} {noun}s, {spec.optimizer.name} with learning rate "
            f"{spec.optimizer.lr} and the schedule `{spec.schedule.kind}`, {spec.epochs} epochs, seed {spec.seed}. "
            "`spec.json` holds every setting, `record.json` every measurement.",
            "",
            f"## How good ({metric})",
            "",
            f"| | last epoch | epoch {best.epoch}, the best on the test {noun}s |",
            "|---|---|---|",
            *table,
            "",
            f"The file holds the network of the last epoch. The best epoch was chosen by looking at the test {noun}s, "
            "so its figure is too good; it is told beside the last, never instead.",
            "",
            *_doubts(spec.data),
            "## Use",
            "",
            "```sh",
            "deepbilevel predict . " + ("photo.jpg" if encoding is None else "table.csv"),
            "```",
            "",
            f"It knows its classes and nothing else: any {noun} is given one of them. It was tested on {noun}s like "
            "those it was trained on; on others, measure first.",
            "",
        ]
    )


def _doubts(data: DataSpec) -> list[str]:
    """Return what to know about the labels of the test images."""
    if not data.tests_doubtful_labels:
        return []
    return [
        "The test samples were set aside from the same data, and their labels are as untrusted as those trained on: a "
        "network that is right where a label is wrong is counted wrong.",
        "",
    ]


def _line(label: str, last: float | None, best: float | None) -> str:
    return f"| {label} | {show_figure(last)} % | {show_figure(best)} % |"


def _inputs(parts: Parts) -> str:
    """Return what the network gets to see."""
    spec, encoding = parts.spec, encoding_of(parts.train.data)
    if encoding is None:
        view = f" and the view `{spec.data.view}`" if spec.data.view else ""
        return f"- {parts.train.data.noun.capitalize()}s reach the network by the recipe `{spec.data.recipe}`{view}."
    columns = _some(tuple(f"{column.name} ({column.kind})" for column in encoding.columns))
    left_out = _some(tuple(f"{name} ({why})" for name, why in encoding.left_out.items()))
    return f"- Predicts {_literal(encoding.target)} from: {columns}." + (f" Left out: {left_out}." if left_out else "")


def _wrong_labels(parts: Parts) -> str:
    data = parts.train.data
    assert data.clean_labels is not None
    rate = (data.labels != data.clean_labels).double().mean().item()
    return f" {100 * rate:.1f} % of them differ from the clean ones."


def _literal(text: str) -> str:
    """Return a stranger's text so that Markdown and HTML show it and obey nothing in it."""
    return re.sub(r"([\\`*_{}\[\]()#+!|~$-])", r"\\\1", html.escape(" ".join(clean(text).split())))


def _some(names: tuple[str, ...], most: int = 20) -> str:
    return ", ".join(map(_literal, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
