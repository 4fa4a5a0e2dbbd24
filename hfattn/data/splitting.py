"""Splits with the same share of each class in all parts, by groups, by time, and in folds; scikit-learn makes them."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, date, datetime
from random import Random
from typing import Any

import numpy as np

from ..errors import UserError
from .text import split_positions

Split = Sequence[float | int | str]


def shuffled_parts(
    groups: Sequence[Hashable],
    classes: Sequence[int] | None,
    split: Split,
    seed: int,
    unit: str,
) -> list[int]:
    """Assign items to parts at random, so that the items of a group stay together.

    With classes, all parts have nearly the same share of each. If a group has one class, the sizes of the parts are
    exact (``train_test_split`` over the groups). Otherwise each part after the first is a fold of
    ``StratifiedGroupKFold``, and its share is rounded to that of one fold: a half, a third, a quarter and so on.

    Args:
        groups: the group of each item.
        classes: the class of each item; None for items without.
        split: shares or counts of groups, see ``split_positions``.
        seed: random seed.
        unit: plural name of the groups, for messages.

    Returns:
        The index of the part of each item.

    Raises:
        UserError: the split does not fit the number of groups.
    """
    from sklearn.model_selection import train_test_split

    first = dict(zip(reversed(groups), reversed(range(len(groups))), strict=True))  # of each group, its first item
    sizes = [where.stop - where.start for where in split_positions(len(first), split, unit)]
    if min(sizes) == 0:
        raise UserError(f"split {list(split)} of {len(first)} {unit} leaves a part empty; add {unit}, or change it.")
    mixed = classes is not None and len(set(zip(groups, classes, strict=True))) > len(first)
    if mixed and classes is not None:
        part = np.zeros(len(groups), int)
        left = list(range(len(groups)))
        for number in range(len(sizes) - 1, 0, -1):
            folds = max(2, round(sum(sizes[: number + 1]) / sizes[number]))
            held = held_out([groups[i] for i in left], [classes[i] for i in left], folds, 1, seed, unit)
            part[[i for i, out in zip(left, held, strict=True) if out]] = number
            left = [i for i, out in zip(left, held, strict=True) if not out]
        return part.tolist()
    part_of: dict[Hashable, int] = {}
    left_groups = sorted(first, key=first.__getitem__)
    for number in range(len(sizes) - 1, 0, -1):
        of_class = None if classes is None else [classes[first[group]] for group in left_groups]
        if of_class is not None and (min(Counter(of_class).values()) < 2 or len(set(of_class)) > sizes[number]):
            of_class = None  # a class has too few for a share in each part; check_classes says which
        left_groups, held_groups = train_test_split(
            left_groups, test_size=sizes[number], random_state=seed, stratify=of_class
        )
        part_of |= dict.fromkeys(held_groups, number)
    return [part_of.get(group, 0) for group in groups]


def label_combinations(labels: Sequence[Sequence[int]], fewest: int) -> list[int]:
    """Return a class for each text with several labels, so that parts with the same share of each have similar labels.

    The class is the combination of labels, or the rarest of its labels if fewer than ``fewest`` texts have it. Texts
    whose rarest label is too rare as well are a class of their own, or belong to the most frequent one.

    Args:
        labels: the labels of each text, in ascending order.
        fewest: texts of a class that are enough to split.
    """
    number_of = Counter(label for several in labels for label in several)
    combinations = Counter(map(tuple, labels))
    found: list[tuple[int, ...] | None] = [
        tuple(several)
        if combinations[tuple(several)] >= fewest
        else tuple(sorted(several, key=number_of.__getitem__)[:1])
        for several in labels
    ]
    counts = Counter(found)
    found = [each if counts[each] >= fewest else None for each in found]
    if 0 < found.count(None) < fewest:
        most = max(counts, key=counts.__getitem__)
        found = [most if each is None else each for each in found]
    numbers = {each: i for i, each in enumerate(dict.fromkeys(found))}
    return [numbers[each] for each in found]


def held_out(
    groups: Sequence[Hashable], classes: Sequence[int] | None, folds: int, fold: int, seed: int, unit: str
) -> np.ndarray:
    """Return which items are in one of k folds, (n,) of booleans.

    Args:
        groups, classes, seed, unit: as for ``shuffled_parts``.
        folds: number of folds.
        fold: the fold, from 1 on.

    Raises:
        UserError: there are fewer groups than folds.
    """
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

    numbers = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    if len(numbers) < folds:
        raise UserError(f"There are {len(numbers)} {unit} for {folds} folds; write fewer in data.folds, or add {unit}.")
    kind = GroupKFold if classes is None else StratifiedGroupKFold
    splitter = kind(folds, shuffle=True, random_state=seed)
    labels = np.zeros(len(groups), int) if classes is None else np.array(classes)
    parts = list(splitter.split(np.zeros(len(groups)), labels, [numbers[group] for group in groups]))
    held = np.zeros(len(groups), bool)
    held[parts[fold - 1][1]] = True
    return held


def timed_parts(times: Sequence[float], split: Split, unit: str) -> list[int]:
    """Assign items to parts by time: the first part has the earliest, and equal times are in one part.

    Raises:
        UserError: the split does not fit, or leaves a part empty.
    """
    order = np.sort(np.array(times))
    ends = [where.stop for where in split_positions(len(order), split, unit)][:-1]
    bounds = [order[end - 1] if end else -np.inf for end in ends]
    parts = np.searchsorted(bounds, times, side="left")  # a time that equals a bound belongs before it
    if len(set(parts.tolist())) < len(split):
        raise UserError(
            f"split {list(split)} by time leaves a part empty, because many {unit} have the same time; write another "
            "split."
        )
    return parts.tolist()


def timed_fold(times: Sequence[float], folds: int, fold: int) -> list[int | None]:
    """Assign items to what is before a fold (0), the fold (1), and what is after it (None), by ``TimeSeriesSplit``.

    Raises:
        UserError: there are too few items.
    """
    from sklearn.model_selection import TimeSeriesSplit

    if len(times) < 2 * (folds + 1):
        raise UserError(f"There are {len(times)} rows for {folds} folds by time; write fewer in data.folds.")
    order = np.argsort(np.array(times), kind="stable")
    before, held = list(TimeSeriesSplit(folds).split(order))[fold - 1]
    parts: list[int | None] = [None] * len(times)
    for part, positions in enumerate((before, held)):
        for i in order[positions]:
            parts[i] = part
    return parts


def as_time(value: Any, place: str) -> float:
    """Return a number or a date as a number that orders it.

    Raises:
        UserError: the value is neither.
    """
    try:
        if isinstance(value, str):
            value = float(value) if value.strip().isdecimal() else datetime.fromisoformat(value.strip())
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if isinstance(value, datetime):
            value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise UserError(
        f"{place} has the time {value!r}; write numbers, or dates such as 2026-03-31 or 2026-03-31T12:30, in "
        "data.time_column."
    )


def check_classes(
    parts: Mapping[str, Sequence[int]], labels: Sequence[str], name: str, unit: str, merged_in: str
) -> None:
    """Check that each part has each class.

    Args:
        parts: the classes of the items of each part.
        labels: names of the classes.
        name: name of the dataset.
        unit: what the items are, such as "texts".
        merged_in: where two classes are merged, for the message.

    Raises:
        UserError: a class is missing from a part.
    """
    counts = {part: Counter(classes) for part, classes in parts.items()}
    for i, label in enumerate(labels):
        missing = [part for part in parts if not counts[part][i]]
        number = sum(count[i] for count in counts.values())
        if missing and number:  # without an item, it is only in data.labels
            raise UserError(
                f"The class {label!r} has {number} of the {unit} of {name}, and none is in {' and '.join(missing)}; "
                f"add {unit}, write larger parts in data.split, or merge the class with another in {merged_in}."
            )


def choose_indices(length: int, number: int | None, seed: int) -> list[int]:
    """Return ``number`` random indices below ``length`` in ascending order, or all of them if ``number`` is None."""
    if number is None or number >= length:
        return list(range(length))
    return sorted(Random(seed).sample(range(length), number))
