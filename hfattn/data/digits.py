"""The digits of scikit-learn: 1,797 images of 8 x 8 pixels, which need no download."""

import numpy as np

from .images import LabeledImage, LabeledImages


def read_digits() -> LabeledImages:
    """Return the digits as gray images, with the classes 0 to 9 (Alpaydin & Kaynak 1998)."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = np.minimum(found.images * 16, 255).astype(np.uint8)  # from 0 to 16
    items = [LabeledImage(image, int(label), line) for line, (image, label) in enumerate(zip(pixels, found.target), 1)]
    return LabeledImages("the digits of scikit-learn", items, labels=[str(digit) for digit in range(10)])
