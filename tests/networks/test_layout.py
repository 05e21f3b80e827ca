import torch

from deepbilevel.networks.layout import channels_last_on_cpu


def test_images_stay_the_same_with_their_channels_last():
    images = torch.randn(2, 3, 4, 5)
    moved = channels_last_on_cpu(images)
    assert torch.equal(moved, images)
    assert moved.is_contiguous(memory_format=torch.channels_last)
    assert channels_last_on_cpu(moved).data_ptr() == moved.data_ptr()  # nothing is copied twice


def test_elsewhere_images_are_left_alone():
    images = torch.empty(2, 3, 4, 5, device="meta")
    assert channels_last_on_cpu(images) is images
