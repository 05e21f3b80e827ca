"""What every data set of the catalog promises."""

import pickle

import torch
from torch.utils.data import DataLoader

from deepbilevel_lab.data import ImageSet, ImagesInMemory, ImagesOnDisk


def assert_is_a_data_set(data: ImageSet) -> None:
    assert len(data) == len(data.labels) > 0
    assert data.num_classes == len(data.class_names) == len(set(data.class_names)) >= 2
    assert sum(data.class_counts()) == (data.labels.sum() if data.multi_label else len(data))
    data.check_labels()
    if data.multi_label:
        assert data.labels.shape == data.difficult.shape == (len(data), data.num_classes)
        assert set(data.labels.unique().tolist()) <= {0.0, 1.0}
        assert not (data.labels.bool() & data.difficult).any()
    else:
        assert data.labels.dtype == torch.int64
        assert 0 <= data.labels.min() <= data.labels.max() < data.num_classes
    if data.clean_labels is not None:
        assert data.clean_labels.shape == data.labels.shape


def assert_images_can_be_read(data: ImageSet) -> None:
    for index in (0, len(data) - 1):
        image = data.read(index)
        assert image.dtype == torch.uint8
        assert image.ndim == 3
        assert len(image) in (1, 3)
        assert torch.equal(image, data.read(index))
    if isinstance(data, ImagesOnDisk):
        data.check_files()
        assert len(data.paths) == len(data)
    else:
        assert isinstance(data, ImagesInMemory)
        assert data.images.shape[0] == len(data)
        assert data.images.is_contiguous()


def assert_loaders_can_batch_it(data: ImageSet) -> None:
    images, labels = next(iter(DataLoader(data, batch_size=2)))
    assert images.shape[0] == 2
    assert torch.equal(labels, data.labels[:2])
    copy = pickle.loads(pickle.dumps(data))  # as it goes to the workers of a loader
    assert torch.equal(copy.labels, data.labels)
