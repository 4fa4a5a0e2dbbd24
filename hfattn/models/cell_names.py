"""The names of the recurrent cells, for configurations, which do not load the cells themselves."""

CELL_NAMES = ("elman", "lstm", "gru", "gru_reset_before")

__all__ = ["CELL_NAMES"]
