"""Show what a vision Transformer looks at in a drawn digit or in an image: class, heads, rollout and gradients.

hfattn space run image_lens --model classifier=runs/mnist
"""

import html
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import torch
from PIL import Image, ImageDraw, ImageOps
from transformers import BaseImageProcessor, PreTrainedModel

from hfattn.data import open_image
from hfattn.data.images import MOST_PIXELS
from hfattn.errors import UserError, one_sentence
from hfattn.explaining import read_image, render_image_html
from hfattn.loading import load_any_model
from hfattn.spaces import Texts, is_toy, launch, load_folder

SPACE = Path(__file__).parent
TEXTS = Texts(SPACE / "texts.yaml")
LONGEST_SIDE = 1024  # pixels, to which an image is reduced when it arrives
Image.MAX_IMAGE_PIXELS = MOST_PIXELS // 2  # Pillow refuses twice as many, also in drawings, which Gradio decodes
CANVAS = 280  # pixels of the side of a drawing
MARGIN = 0.06  # of the side of a digit, around its ink
LISTED = 5  # classes
CSS = """
.answer { display: grid; grid-template-columns: auto 1fr auto; gap: .25rem .6rem; align-items: center; }
.answer .bar { height: .8rem; border-radius: .25rem; background: var(--background-fill-secondary); }
.answer .bar i { display: block; height: 100%; border-radius: .25rem; background: #2563eb; min-width: 1px; }
.answer b, .answer span { overflow-wrap: anywhere; }
.answer .best { font-weight: 700; }
.answer .share { font-variant-numeric: tabular-nums; text-align: right; }
.maps iframe { width: 100%; height: 40rem; margin-top: .8rem; border: 1px solid var(--border-color-primary);
  border-radius: .6rem; color-scheme: light; }
.dark .maps iframe { color-scheme: dark; }
"""


class Classifier(NamedTuple):
    """A classifier of images.

    Args:
        model: in evaluation mode, float32.
        processor: its image processor.
        toy: whether it was trained on small digits when the Space was built.
    """

    model: PreTrainedModel
    processor: BaseImageProcessor
    toy: bool

    @classmethod
    def load(cls, name: str, toy: bool = False) -> "Classifier":
        """Load a classifier from a folder or the Hub.

        Raises:
            UserError: if it is not a classifier of images.
        """
        model, processor, _ = load_any_model(name)
        if not type(model).__name__.endswith("ForImageClassification"):
            raise UserError(f"{name} holds a {type(model).__name__}, which classifies no images; choose another model.")
        return cls(model.float().eval(), processor, toy)

    @torch.inference_mode()
    def probabilities(self, image: Image.Image) -> list[tuple[str, float]]:
        """Return the most probable classes with their probabilities, the best first."""
        pixel_values = self.processor(image, return_tensors="pt")["pixel_values"]
        shares = self.model(pixel_values=pixel_values).logits[0].softmax(-1)
        best = shares.topk(min(LISTED, len(shares)))
        return [
            (str(self.model.config.id2label[number]), share)
            for share, number in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]


def received(path: str) -> Image.Image:
    """Read the file of an upload, reduce it, and delete the file.

    Raises:
        UserError: it is not an image, or too large.
    """
    file = Path(path)
    try:
        image = open_image(file, place="The image")
    finally:
        file.unlink(missing_ok=True)
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return image


def example() -> Image.Image:
    """Return a drawing of a seven, with which the page starts."""
    drawing = Image.new("RGBA", (CANVAS, CANVAS))
    ImageDraw.Draw(drawing).line([(75, 60), (205, 60), (130, 235)], fill="black", width=40, joint="curve")
    return drawing


def digit(drawing: Image.Image) -> Image.Image | None:
    """Return a drawing in dark ink as a light digit on black, as in MNIST, cut out and centered; None without ink."""
    paper = Image.new("RGBA", drawing.size, "white")
    ink = ImageOps.invert(Image.alpha_composite(paper, drawing.convert("RGBA")).convert("L"))
    box = ink.point(lambda value: 255 if value > 64 else 0).getbbox()
    if box is None:
        return None
    cut = ink.crop(box)
    side = round(max(cut.size) * (1 + 2 * MARGIN))
    square = Image.new("L", (side, side))
    square.paste(cut, ((side - cut.width) // 2, (side - cut.height) // 2))
    return square.convert("RGB")


def answer(found: list[tuple[str, float]]) -> str:
    """Return bars of the probabilities, the largest in bold."""
    rows = []
    for place, (label, share) in enumerate(found):
        kind = ' class="best"' if place == 0 else ""
        rows.append(
            f'<span{kind}>{html.escape(label)}</span><div class="bar"><i style="width:{100 * share:.1f}%"></i></div>'
            f'<span class="share">{share:.1%}</span>'
        )
    return f'<div class="answer">{"".join(rows)}</div>'


def build(classifier: Classifier) -> gr.Blocks:
    """Build the page."""

    def seen(image: Image.Image, request: gr.Request) -> tuple[str, str]:
        """Return the classes of an image, and the page with its heat maps in a frame."""
        reading = read_image("The model", classifier.model, classifier.processor, image)
        title = TEXTS.say(request, "map", answer=reading.answer)
        page = html.escape(render_image_html(reading.image, reading.views, title))
        frame = f'<iframe srcdoc="{page}" title="{html.escape(title)}" onload="mapLoaded(this)"></iframe>'
        return answer(classifier.probabilities(image)), f'<div class="maps">{frame}</div>'

    def draw(drawing: dict[str, Any] | None, request: gr.Request) -> tuple[str, str]:
        ink = None if drawing is None or drawing["composite"] is None else digit(drawing["composite"])
        if ink is None:
            TEXTS.refuse(request, "no_drawing")
        return seen(ink, request)

    def welcome(request: gr.Request) -> tuple[str, str]:
        return draw({"composite": example()}, request)

    def drop(path: str | None, request: gr.Request) -> tuple[str, str, None]:
        """Return what ``seen`` does, and nothing for the file, which is deleted."""
        if path is None:
            TEXTS.refuse(request, "no_image")
        try:
            image = received(path)
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from error
        return *seen(image, request), None

    with gr.Blocks(title="Image lens", analytics_enabled=False, delete_cache=(60, 60)) as page:
        gr.Markdown(TEXTS("title"))
        gr.Markdown(TEXTS("intro"))
        with gr.Row(equal_height=False):
            with gr.Column(scale=1, min_width=320):
                heading = TEXTS.toy("heading", "toy") if classifier.toy else TEXTS("heading")
                gr.Markdown(heading)
                gr.Markdown(
                    f"`{classifier.model.config.model_type}` · {classifier.model.num_parameters():,} "
                    f"{TEXTS('parameters')}",
                    elem_classes="quiet",
                )
                with gr.Tab(TEXTS("draw")):
                    drawing = gr.Sketchpad(
                        {"background": None, "layers": [example()], "composite": example()},
                        label=TEXTS("drawing"), type="pil", image_mode="RGBA", canvas_size=(CANVAS, CANVAS),
                        fixed_canvas=True, layers=False, buttons=[], height=420,
                        brush=gr.Brush(default_size=24, colors=["#000000"], color_mode="fixed"),
                    )  # fmt: skip
                    reading = gr.Button(TEXTS("read"), variant="primary")
                with gr.Tab(TEXTS("drop")):
                    # Not gr.Image, which decodes the file before it can be refused.
                    dropped = gr.File(label=TEXTS("image"), file_types=["image"], type="filepath", height=200)
                    gr.Markdown(TEXTS("privacy"), elem_classes="quiet")
                classes = gr.HTML(elem_id="classes", min_height=60)
            with gr.Column(scale=2, min_width=320):
                maps = gr.HTML(elem_id="maps", min_height=120)
        gr.Markdown(TEXTS("limits"), elem_classes="quiet")

        outputs = [classes, maps]
        # Progress is hidden, otherwise Gradio shows "Error" on top of the output.
        page.load(welcome, None, outputs, api_visibility="private", show_progress="hidden")
        reading.click(draw, drawing, outputs, api_name="draw", show_progress="hidden")
        dropped.upload(drop, dropped, [*outputs, dropped], api_name="drop", show_progress="hidden")
    return page


def main() -> None:
    with one_sentence():
        classifier = Classifier.load(load_folder("classifier", SPACE), is_toy("classifier", SPACE))
    script = (SPACE / "lens.js").read_text(encoding="utf-8")
    launch(build(classifier), TEXTS, CSS, head=f"<script>{script}</script>", max_file_size="20mb")


if __name__ == "__main__":
    main()
