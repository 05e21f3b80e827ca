"""A network from its spec, wherever it and its weights come from."""

from collections.abc import Callable

from torch import nn

from deepbilevel_lab.networks.catalog import NetworkSpec, build_network
from deepbilevel_lab.networks.fine_tuning import fill_from, freeze_backbone
from deepbilevel_lab.networks.named_code import TIMM, TRANSFORMERS, check_named, make_own, needs_naming
from deepbilevel_lab.networks.timm_networks import make_timm
from deepbilevel_lab.networks.transformers_networks import make_transformer
from deepbilevel_lab.networks.weights_file import read_weights


def make_model(
    spec: NetworkSpec,
    num_classes: int,
    input_shape: tuple[int, ...] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> nn.Module:
    """Build a network, from the weights of a file where one is named.

    Args:
        spec: the network.
        num_classes: how many scores it gives.
        input_shape: of rows, which a network of the catalog is as wide as.
        tell: is told what of the weights was left out.
    """
    model = _make(spec, num_classes, input_shape)
    if spec.weights is not None and (note := fill_from(model, read_weights(spec.weights), spec.weights, num_classes)):
        tell(note)
    if spec.freeze:
        freeze_backbone(model, num_classes)
    for module in model.modules():
        if isinstance(module, nn.Dropout) and spec.dropout is not None:
            module.p = spec.dropout
    return model


def _make(spec: NetworkSpec, num_classes: int, input_shape: tuple[int, ...] | None) -> nn.Module:
    """Make a network: of the catalog, of timm, of transformers, or by the user's own function."""
    arguments = dict(spec.arguments)
    if spec.name.startswith(TIMM):
        if needs_naming(spec.name):
            check_named(spec.name, spec.code)
        return make_timm(spec.name, num_classes, pretrained=spec.pretrained, arguments=arguments)
    if spec.name.startswith(TRANSFORMERS):
        place = check_named(spec.name, spec.code)
        return make_transformer(place, num_classes, side=spec.side, pretrained=spec.pretrained, arguments=arguments)
    if ":" in spec.name:
        return make_own(spec.name, spec.code, num_classes, arguments)
    return build_network(spec.name, num_classes=num_classes, side=spec.side, input_shape=input_shape)
