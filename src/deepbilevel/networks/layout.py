"""How images lie in memory, which a network of convolutions keeps from its first layer to its last."""

from torch import Tensor


def channels_last_on_cpu(images: Tensor) -> Tensor:
    """Return the same images, on a CPU with the channels of a pixel beside each other.

    There CifarNet's convolutions run up to 1.6 times as fast, the small Inception takes a sixth less time and PreAct
    ResNet-18 a twentieth (docs/performance.md). Parameters stay as they are, so nobody has to know.
    """
    if images.device.type != "cpu":
        return images
    return images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)  # vmap has no `contiguous(memory_format=...)`
