"""The catalog of rules: every rule by its kind, and one's own by its path."""

from dataclasses import dataclass, fields
from typing import ClassVar

import pytest

from deepbilevel.rules.agreement_filter import AgreementFilter
from deepbilevel.rules.and_mask import AndMask
from deepbilevel.rules.average import Sgd, Uniform
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel.rules.catalog import RULES, find_rule
from deepbilevel.rules.cross_validated import CrossValidatedRule
from deepbilevel.rules.exact import ExactBilevel
from deepbilevel.rules.gsnr import Gsnr
from deepbilevel.rules.k_fold import KFoldBilevel
from deepbilevel.rules.median_of_three import MedianOfThree
from deepbilevel.rules.momentum import MomentumBilevel


def test_the_catalog_names_every_rule_by_its_kind():
    assert {
        "bilevel": BilevelRule,
        "cross-validated": CrossValidatedRule,
        "sgd": Sgd,
        "uniform": Uniform,
        "exact": ExactBilevel,
        "k-fold": KFoldBilevel,
        "momentum": MomentumBilevel,
        "and-mask": AndMask,
        "median-of-three": MedianOfThree,
        "gsnr": Gsnr,
        "agreement-filter": AgreementFilter,
    } == RULES
    assert [name for name in RULES if not RULES[name].splits] == ["sgd"]
    matching = ["bilevel", "uniform", "exact", "k-fold", "momentum"]
    assert [name for name in RULES if RULES[name].matches] == matching
    assert [name for name in RULES if RULES[name].validates] == ["bilevel", "uniform", "exact", "momentum"]


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_is_a_value(kind):
    rule = find_rule(kind)()
    assert rule == RULES[kind]()
    assert hash(rule) == hash(RULES[kind]())
    assert rule.kind == kind
    assert rule.description
    assert "kind" not in {each.name for each in fields(rule)}


@dataclass(frozen=True)
class Own(Sgd):
    kind: ClassVar[str] = f"{__name__}:Own"


@dataclass(frozen=True)
class Misnamed(Sgd):
    kind: ClassVar[str] = "misnamed"


def test_ones_own_rule_is_found_by_its_path():
    assert find_rule(Own.kind) is Own


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bilevl", "unknown rule 'bilevl'; did you mean 'bilevel'"),
        ("no_such_module:Own", r"No module named .*; the module must be importable from here \(PYTHONPATH\)"),
        (f"{__name__}:Absent", "has no subclass of deepbilevel.contract.Rule called 'Absent'"),
        (f"{__name__}:pytest", "has no subclass of deepbilevel.contract.Rule called 'pytest'"),
        (f"{__name__}:Misnamed", f"set its class attribute to kind = '{__name__}:Misnamed'"),
    ],
)
def test_what_cannot_be_found_is_told(kind, message):
    with pytest.raises(ValueError, match=message):
        find_rule(kind)
