"""Run the ``hfattn`` command as ``python -m hfattn``."""

from .cli import app

app(prog_name="hfattn")
