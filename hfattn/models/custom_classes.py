"""Imports of the custom classes that config.json names, so that their files are loaded with the model."""

CLASSES: dict[str, type] = {}
