"""Solutions whose steps somebody has labelled: what `reward.kind=labelled reward.data=FILE` and `stepwell eval-judge` read.

The layouts are those of `stepwell.label_layouts`, told apart by their keys, in JSON lines, as one JSON list, or as Parquet.
"""

from __future__ import annotations

from pathlib import Path

from stepwell.entries import read_entries
from stepwell.errors import DataError
from stepwell.label_layouts import FORM, LabelledSolution, Labels, layout_of, prm800k_rows

__all__ = ["LabelledSolution", "Labels", "read_step_labels"]

_USUAL = Labels()


def read_step_labels(path: Path, how: Labels = _USUAL, *, only: tuple[str, ...] = ()) -> list[LabelledSolution]:
    """All labelled solutions of a file, in order (of PRM800K by rows: first the chosen paths).

    Args:
        path: The file.
        how: How labels are read.
        only: Names of the layouts that are allowed, see `label_layouts.LAYOUTS`; empty is all.

    Raises:
        DataError: With the entry's place, where one is not as described, or labels and steps are of different number; or no step in the
            file is labelled.
        MissingExtraError: A Parquet file, and pyarrow is not installed.
    """
    found: list[LabelledSolution] = []
    rows = []
    for place, entry in read_entries(path, "Step labels", FORM):
        layout, known = layout_of(entry, place, only)
        if layout.read is None:
            rows.append((place, known))
        else:
            found += layout.read(known, place, how)
    found += prm800k_rows(rows, how)
    if not any(label is not None for solution in found for label in solution.labels):
        raise DataError(f"{path} holds no labelled step; {FORM}.")
    return found
