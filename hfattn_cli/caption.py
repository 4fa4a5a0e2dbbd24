"""The command ``caption``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .common import AsJson, Model, NumBeams, check_output, one_sentence

_KINDS = (".html", ".png", ".svg", ".pdf")


def caption(
    model: Model,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files.")],
    num_beams: NumBeams = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write where each word looks, as a page (.html) or a picture; for one image."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Caption images.

    Print one line for each image. With --json, a line has the log-probability of the caption too.

    Example: hfattn caption runs/captions picture.png --output page.html
    """
    from hfattn.errors import UserError

    with one_sentence():
        if output is not None:
            if len(images) > 1:
                raise UserError(f"--output is for one image, and {len(images)} are given; give one.")
            check_output(output, _KINDS)
        from hfattn.data import open_image
        from hfattn.explaining import plot_overlay, save_image_html
        from hfattn.loading import load_captioner
        from hfattn.pipelines import captions

        for image in images:
            if not image.is_file():
                raise UserError(f"There is no file {image}; give the path of an image.")
        opened = [open_image(image, place=str(image)) for image in images]
        found = captions(*load_captioner(model), opened, num_beams)
        for image, each in zip(images, found, strict=True):
            row = {"image": str(image), "caption": each["caption_text"], "score": each["score"]}
            print(json.dumps(row, ensure_ascii=False) if as_json else each["caption_text"])
        if output is None:
            return
        text, record = found[0]["caption_text"], found[0]["alignment"]
        if output.suffix.lower() == ".html":
            save_image_html(opened[0], {"attention": record}, output, title=text)
        else:
            plot_overlay(record, opened[0], title=text).savefig(output, dpi=150)
