"""``python -m hfattn``: the command, where its script is not on the path."""

from .cli import app

app(prog_name="hfattn")
