"""The methods as values. What each of them does with a group is decided where a spec becomes objects.

Of a group of k mini-batches a method says whether it takes them one by one or as one batch (``splits``), whether they
should carry the same labels (``matches``), and whether the first of them is only for validation (``validates``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, get_args

from deepbilevel.cross_validated import Block, Shrink
from deepbilevel.methods.settings import check_distance, check_floor, check_threshold
from deepbilevel.rule import Validation, Weighting, check_choices, check_rule
from deepbilevel.specs import validate
from deepbilevel.step import Solver


@dataclass(frozen=True)
class SgdSpec:
    """Plain training: the whole group is one batch, drawn without regard to labels."""

    kind: ClassVar[str] = "sgd"
    description: ClassVar[str] = "plain training, the group as one batch"
    splits: ClassVar[bool] = False
    matches: ClassVar[bool] = False
    validates: ClassVar[bool] = False


@dataclass(frozen=True)
class UniformSpec:
    """The control: the same matched mini-batches as bilevel, all with the same weight.

    Attributes:
        use_validation: learn from the first mini-batch too, so that nothing is thrown away; this is gradient
            accumulation.
    """

    kind: ClassVar[str] = "uniform"
    description: ClassVar[str] = "control: bilevel's mini-batches with equal weights"
    splits: ClassVar[bool] = True
    matches: ClassVar[bool] = True
    validates: ClassVar[bool] = True

    use_validation: bool = False

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True)
class BilevelSpec:
    """The paper's rule; the arguments of :class:`~deepbilevel.Bilevel`.

    Attributes:
        weighting: ``agreement`` is the paper's; ``absolute``, ``clipped`` and ``random`` are controls; ``cosine``
            leaves out the lengths of gradients.
        validation: by the ``first`` mini-batch as in the paper; by its ``momentum`` over groups; or ``k-fold``, every
            mini-batch by all others.
        validation_momentum: of ``momentum``.
        shared_dropout: draw the same dropout masks for all mini-batches of a group.
    """

    kind: ClassVar[str] = "bilevel"
    description: ClassVar[str] = "the paper's rule: weights by agreement with validation"
    splits: ClassVar[bool] = True
    matches: ClassVar[bool] = True
    validates: ClassVar[bool] = True

    mu: float = 0.01
    lam: float = 1.0
    normalize: bool = True
    per_layer: bool = False
    solver: Solver = "diagonal"
    weighting: Weighting = "agreement"
    validation: Validation = "first"
    validation_momentum: float = 0.9
    shared_dropout: bool = False

    def __post_init__(self) -> None:
        validate(self)
        check_rule(lam=self.lam, mu=self.mu)
        check_choices(
            weighting=self.weighting,
            validation=self.validation,
            validation_momentum=self.validation_momentum,
            solver=self.solver,
        )


@dataclass(frozen=True)
class CrossValidatedSpec:
    """Our own rule; the arguments of :class:`~deepbilevel.CrossValidated`. Its mini-batches need no matching labels.

    Attributes:
        shrink: ``gradient`` for SGD, ``update`` for Adam and its kin, which undo what is done to a gradient's size.
    """

    kind: ClassVar[str] = "cross-validated"
    description: ClassVar[str] = "what the mini-batches of a group agree on, parameter by parameter"
    splits: ClassVar[bool] = True
    matches: ClassVar[bool] = False
    validates: ClassVar[bool] = False

    block: Block = "parameter"
    shrink: Shrink = "gradient"

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True)
class AndMaskSpec:
    """Learn where signs agree; the arguments of :class:`~deepbilevel.methods.AndMask`."""

    kind: ClassVar[str] = "and-mask"
    description: ClassVar[str] = "the mean where the mini-batches of a group agree on the sign"
    splits: ClassVar[bool] = True
    matches: ClassVar[bool] = False
    validates: ClassVar[bool] = False

    threshold: float = 0.5

    def __post_init__(self) -> None:
        validate(self)
        check_threshold(self.threshold)


@dataclass(frozen=True)
class MedianOfThreeSpec:
    """The median of three means; see :class:`~deepbilevel.methods.MedianOfThree`. It needs groups of at least three."""

    kind: ClassVar[str] = "median-of-three"
    description: ClassVar[str] = "the median of three parts of a group, parameter by parameter"
    splits: ClassVar[bool] = True
    matches: ClassVar[bool] = False
    validates: ClassVar[bool] = False


@dataclass(frozen=True)
class GsnrSpec:
    """Steps by the signal-to-noise ratio; the arguments of :class:`~deepbilevel.methods.GsnrWeighted`."""

    kind: ClassVar[str] = "gsnr"
    description: ClassVar[str] = "the mean, smaller where mini-batches differ more than elsewhere"
    splits: ClassVar[bool] = True
    matches: ClassVar[bool] = False
    validates: ClassVar[bool] = False

    floor: float = 0.1

    def __post_init__(self) -> None:
        validate(self)
        check_floor(self.floor)


@dataclass(frozen=True)
class AgreementFilterSpec:
    """Average what agrees; the arguments of :class:`~deepbilevel.methods.AgreementFilter`."""

    kind: ClassVar[str] = "agreement-filter"
    description: ClassVar[str] = "an average of the mini-batches that agree with those before them"
    splits: ClassVar[bool] = True
    matches: ClassVar[bool] = False
    validates: ClassVar[bool] = False

    max_cosine_distance: float = 0.97

    def __post_init__(self) -> None:
        validate(self)
        check_distance(self.max_cosine_distance)


MethodSpec = (
    BilevelSpec
    | CrossValidatedSpec
    | SgdSpec
    | UniformSpec
    | AndMaskSpec
    | MedianOfThreeSpec
    | GsnrSpec
    | AgreementFilterSpec
)

METHODS: Mapping[str, type[MethodSpec]] = MappingProxyType({member.kind: member for member in get_args(MethodSpec)})
