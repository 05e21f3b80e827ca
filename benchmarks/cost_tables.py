"""Markdown tables from the committed records of `python -m benchmarks.cost` and the counted work of the tests."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.record_tables import RESULTS, markdown_table

_COUNTED = Path(__file__).parents[1] / "tests" / "golden" / "counted_work.json"
_NETWORKS: Mapping[str, str] = {
    "cifarnet": "CifarNet",
    "inception": "Inception",
    "preact_resnet18": "PreAct ResNet-18",
}
_CLOSER = ("cifarnet-8x8", "cifarnet-8x16", "cifarnet-8x64", "inception", "inception-8x64", "preact-resnet18")
_OWN = ("cross-validated", "cross-validated, averaged", "cross-validated, averaged, at once")
_COMPARED = ("gradient accumulation", "bilevel", "bilevel, at once", "gradient-agreement-filtering")
_SUMMARISED: Mapping[str, str] = {
    "bilevel": "`Bilevel`, one pass per mini-batch",
    "bilevel, at once": "`Bilevel`, joined passes",
    "cross-validated": "`CrossValidated`, one pass per mini-batch",
}
_IN_MEMORY: Mapping[str, str] = {
    "SGD, one mini-batch": "SGD, one mini-batch",
    "SGD, one batch": "SGD, all samples in one batch",
    "bilevel": "bilevel",
    "bilevel, at once": "bilevel, at once",
    "bilevel, exact": "bilevel, exact",
}


def summary() -> str:
    """Return the lowest and highest cost of both rules over the settings that were measured over many rounds."""
    settings = [*(each for _, each in _closer()), *_updates("bench/own-rule.json").values()]
    rows: list[list[str]] = []
    for name, shown in _SUMMARISED.items():
        measured = [each[name] for each in settings if name in each]
        ranges = (_range(each[to]["median"] for each in measured) for to in ("to_sgd", "to_accumulation"))
        rows.append([shown, *ranges])
    return markdown_table(["", "relative to SGD", "relative to gradient accumulation"], rows)


def updates() -> str:
    """Return the cost of an update in the settings that were measured over many rounds."""
    rows: list[list[str]] = []
    for setting, contenders in _closer():
        network, _, shape = setting.partition(" ")
        rounds = contenders["bilevel"]["rounds"]
        ratios = (_ratio(contenders[compared]) for compared in _COMPARED)
        rows.append([f"{_NETWORKS[network]} {shape} ({rounds})", *ratios])
    return markdown_table(["network, group (rounds)", *_COMPARED], rows)


def own_rule() -> str:
    """Return the cost of our rule relative to accumulation, in the settings that were measured over many rounds."""
    rows: list[list[str]] = []
    for setting, contenders in _updates("bench/own-rule.json").items():
        network, _, shape = setting.partition(" ")
        ratios = (contenders[name]["to_accumulation"] for name in _OWN)
        texts = (f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})" for ratio in ratios)
        rows.append([f"{_NETWORKS[network]} {shape} ({contenders[_OWN[0]]['rounds']})", *texts])
    return markdown_table(["network, group (rounds)", *_OWN], rows)


def variants() -> str:
    """Return the lowest and highest cost over all settings, of what was measured over a few rounds."""
    settings = _updates("bench/bench.json")
    rows: list[list[str]] = []
    for name in next(iter(settings.values())):
        if name not in ("SGD, one batch", *_COMPARED):
            medians = [each[name]["to_sgd"]["median"] for each in settings.values() if not each[name]["failed"]]
            failed = [setting for setting, each in settings.items() if each[name]["failed"]]
            rows.append([name, _range(medians), _networks(failed)])
    return markdown_table(["update", "relative to SGD", "fails on"], rows)


def memory() -> str:
    """Return the peak memory of groups of growing size, in multiples of the model's size."""
    peaks: Mapping[str, Mapping[str, float]] = _read("bench/bench.json")["memory"]
    sizes = [setting.split()[1].partition("x")[0] for setting in peaks]
    rows = [[shown, *(f"{each[name]:.1f}" for each in peaks.values())] for name, shown in _IN_MEMORY.items()]
    return markdown_table(["", *(f"k = {size}" for size in sizes)], rows)


def counted() -> str:
    """Return what rules do beyond the passes of the network, as the tests count it."""
    rows = [[name, *(f"{number:.0f}" for number in counts.values())] for name, counts in _json(_COUNTED).items()]
    return markdown_table(["", "operations", "model sizes read and written", "model sizes allocated"], rows)


def _range(medians: Iterable[float]) -> str:
    ordered = sorted(medians)
    return f"{ordered[0]:.2f} to {ordered[-1]:.2f}"


def _ratio(contender: Mapping[str, Any]) -> str:
    to_sgd, to_accumulation = contender["to_sgd"], contender["to_accumulation"]
    text = f"{to_sgd['median']:.2f} ({to_sgd['low']:.2f}-{to_sgd['high']:.2f})"
    return text if contender["name"] == "gradient accumulation" else f"{text} / {to_accumulation['median']:.2f}"


def _networks(settings: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(_NETWORKS[setting.split()[0]] for setting in settings))


def _closer() -> list[tuple[str, dict[str, Any]]]:
    return [setting for name in _CLOSER for setting in _updates(f"bench/closer/{name}.json").items()]


def _updates(path: str) -> dict[str, dict[str, Any]]:
    return {setting: {each["name"]: each for each in found} for setting, found in _read(path)["updates"].items()}


def _read(path: str) -> dict[str, Any]:
    return _json(RESULTS / path)


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())
