"""Run the ``hfattn`` command as ``python -m hfattn``."""

from hfattn_cli import app

app(prog_name="hfattn")
