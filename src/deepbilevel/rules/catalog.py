"""Every rule by its kind. A new rule is a file beside this one and a line here."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from deepbilevel.checks import choose
from deepbilevel.contract import Rule
from deepbilevel.rules.agreement_filter import AgreementFilter
from deepbilevel.rules.and_mask import AndMask
from deepbilevel.rules.average import Sgd, Uniform
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel.rules.cross_validated import CrossValidatedRule
from deepbilevel.rules.exact import ExactBilevel
from deepbilevel.rules.gsnr import Gsnr
from deepbilevel.rules.k_fold import KFoldBilevel
from deepbilevel.rules.median_of_three import MedianOfThree
from deepbilevel.rules.momentum import MomentumBilevel

RULES: Mapping[str, type[Rule[Any]]] = MappingProxyType(
    {
        rule.kind: rule
        for rule in (
            BilevelRule,
            CrossValidatedRule,
            Sgd,
            Uniform,
            ExactBilevel,
            KFoldBilevel,
            MomentumBilevel,
            AndMask,
            MedianOfThree,
            Gsnr,
            AgreementFilter,
        )
    }
)


def find_rule(kind: str) -> type[Rule[Any]]:
    """Return the rule of that kind: one of :data:`RULES`, or one's own as ``package.module:ClassName``.

    The ``kind`` of one's own rule is that path, so that whoever reads it in a record finds the rule again.
    """
    if ":" not in kind:
        return RULES[choose("rule", kind, RULES)]
    module, _, name = kind.partition(":")
    try:
        found = getattr(import_module(module), name, None)
    except (ImportError, TypeError, ValueError) as error:  # the last two: a name that no module can have
        raise ValueError(f"rule {kind!r}: {error}; the module must be importable from here (PYTHONPATH)") from error
    if not (isinstance(found, type) and issubclass(found, Rule)):
        raise ValueError(f"rule {kind!r}: module {module} has no subclass of deepbilevel.contract.Rule called {name!r}")
    if getattr(found, "kind", None) != kind:
        raise ValueError(f"rule {kind!r}: set its class attribute to kind = {kind!r}, so that records can name it")
    return found
