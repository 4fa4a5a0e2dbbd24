"""The digits of scikit-learn: 1,797 images of 8 x 8 pixels, which need no download."""

import numpy as np

from .images import CaptionedImage, CaptionedImages, LabeledImage, LabeledImages

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def read_digits() -> LabeledImages:
    """Return the digits as gray images, with the classes 0 to 9 (Alpaydin & Kaynak 1998)."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = np.minimum(found.images * 16, 255).astype(np.uint8)  # from 0 to 16
    labeled = zip(pixels, found.target.tolist(), strict=True)
    items = [LabeledImage(image, label, line) for line, (image, label) in enumerate(labeled, 1)]
    return LabeledImages("the digits of scikit-learn", items, labels=[str(digit) for digit in range(10)])


def read_digit_words() -> CaptionedImages:
    """Return the digits with their names, such as "seven", as texts."""
    digits = read_digits()
    items = [CaptionedImage(image, WORDS[label], line) for image, label, line, _ in digits]
    return CaptionedImages(digits.name, items)
