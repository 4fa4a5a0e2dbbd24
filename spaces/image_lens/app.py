"""Show what a model looks at in an image, a vision Transformer and a captioner; and find images by their names.

hfattn space run image_lens --model classifier=runs/mnist --model captioner=runs/scenes --model finder=runs/emoji
"""

import html
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import torch
from PIL import Image, ImageDraw, ImageOps
from transformers import BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerBase

from hfattn.data import open_image, read_digits
from hfattn.data.images import FORMATS, MOST_PIXELS, as_base64
from hfattn.data.scenes import Scenes, digit_things
from hfattn.errors import UserError, one_sentence
from hfattn.explaining import ImageReading, read_captions, read_image, render_image_html
from hfattn.loading import load_any_model, load_captioner
from hfattn.retrieval import embed_images, embed_texts, load_dual_encoder
from hfattn.spaces import Texts, is_toy, knows, launch, load_folder, number

SPACE = Path(__file__).parent
TEXTS = Texts(SPACE / "texts.yaml")
LONGEST_SIDE = 1024  # pixels, to which an image is reduced when it arrives
Image.MAX_IMAGE_PIXELS = MOST_PIXELS // 2  # Pillow refuses twice as many, also in drawings, which Gradio decodes
CANVAS = 280  # pixels of the side of a drawing
MARGIN = 0.06  # of the side of a digit, around its ink
LISTED = 5  # classes
SCENE = 64  # pixels of the side of a composed scene
MOST_BEAMS = 5
EXAMPLE = "seven"  # the text with which the page starts, which the toy knows; it is the same in all languages
FOUND = 12  # images that are nearest to a text
POOL = 200  # images to look in
THUMBNAIL = 160  # pixels, to which the images to look in are reduced
LONGEST_TEXT = 200  # characters
CSS = """
.answer { display: grid; grid-template-columns: auto 1fr auto; gap: .25rem .6rem; align-items: center; }
.answer .bar { height: .8rem; border-radius: .25rem; background: var(--background-fill-secondary); }
.answer .bar i { display: block; height: 100%; border-radius: .25rem; background: #2563eb; min-width: 1px; }
.answer b, .answer span { overflow-wrap: anywhere; }
.answer .best { font-weight: 700; }
.answer .share { font-variant-numeric: tabular-nums; text-align: right; }
.found { display: grid; grid-template-columns: repeat(auto-fill, minmax(7rem, 1fr)); gap: .6rem; }
.found figure { margin: 0; text-align: center; font-variant-numeric: tabular-nums; }
.found img { width: 100%; aspect-ratio: 1; object-fit: contain; border-radius: .4rem;
  background: var(--background-fill-secondary); }
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


class Captioner(NamedTuple):
    """A model that captions images.

    Args:
        model: in evaluation mode, float32.
        tokenizer: its tokenizer.
        processor: its image processor.
        toy: whether it was trained on scenes of small digits when the Space was built.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    processor: BaseImageProcessor
    toy: bool

    @classmethod
    def load(cls, name: str, toy: bool = False) -> "Captioner":
        """Load a captioner from a folder or the Hub.

        Raises:
            UserError: if it does not caption images.
        """
        model, tokenizer, processor = load_captioner(name)
        return cls(model.float().eval(), tokenizer, processor, toy)


class Finder(NamedTuple):
    """A dual encoder, which compares images with texts.

    Args:
        model: in evaluation mode, float32.
        tokenizer: its tokenizer.
        processor: its image processor.
        toy: whether it was trained on small digits and their names when the Space was built.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    processor: BaseImageProcessor
    toy: bool

    @classmethod
    def load(cls, name: str, toy: bool = False) -> "Finder":
        """Load a dual encoder from a folder or the Hub.

        Raises:
            UserError: if it does not embed images and texts.
        """
        model, tokenizer, processor = load_dual_encoder(name)
        return cls(model.float().eval(), tokenizer, processor, toy)

    def embedded(self, images: list[Image.Image]) -> "Pool":
        """Return images to look in."""
        for image in images:
            image.thumbnail((THUMBNAIL, THUMBNAIL))
        return Pool(images, embed_images(self.model, self.processor, images))

    def nearest(self, text: str, pool: "Pool") -> list[tuple[Image.Image, float]]:
        """Return the images that are nearest to a text with their cosines, the best first."""
        cosines = pool.embeds @ embed_texts(self.model, self.tokenizer, [text])[0]
        best = cosines.topk(min(FOUND, len(pool.images)))
        return [(pool.images[i], cosine) for i, cosine in zip(best.indices.tolist(), best.values.tolist(), strict=True)]


class Pool(NamedTuple):
    """Images to look in, and their embeddings (N, D)."""

    images: list[Image.Image]
    embeds: torch.Tensor


def digits() -> list[Image.Image]:
    """Return digits of scikit-learn, to look in before there are other images."""
    return [open_image(item.image) for item in list(read_digits())[-POOL:]]


def scene(seed: int) -> Image.Image:
    """Return a scene of two digits of scikit-learn that the toy has not seen."""
    scenes = Scenes(digit_things(None, "en"), [2], SCENE, (0.55, 0.9), "black", "en", "digits")
    return open_image(scenes.draw("test", 1, seed).items[0].image)


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


def on_black(drawing: Image.Image) -> Image.Image:
    """Return a drawing in dark ink as light ink on black, as in MNIST."""
    paper = Image.new("RGBA", drawing.size, "white")
    return ImageOps.invert(Image.alpha_composite(paper, drawing.convert("RGBA")).convert("L"))


def digit(drawing: Image.Image) -> Image.Image | None:
    """Return a drawing in dark ink as a light digit on black, as in MNIST, cut out and centered; None without ink."""
    ink = on_black(drawing)
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


def maps_of(reading: ImageReading, request: gr.Request) -> str:
    """Return the page with the heat maps of an image in a frame."""
    title = TEXTS.say(request, "map", answer=reading.answer)
    page = html.escape(render_image_html(reading.image, reading.views, title))
    frame = f'<iframe srcdoc="{page}" title="{html.escape(title)}" onload="mapLoaded(this)"></iframe>'
    return f'<div class="maps">{frame}</div>'


def sketchpad(label: str, drawing: Image.Image | None = None) -> gr.Sketchpad:
    """Return a paper to draw on in black."""
    value = None if drawing is None else {"background": None, "layers": [drawing], "composite": drawing}
    return gr.Sketchpad(
        value, label=TEXTS(label), type="pil", image_mode="RGBA", canvas_size=(CANVAS, CANVAS), fixed_canvas=True,
        layers=False, buttons=[], height=420,
        brush=gr.Brush(default_size=24, colors=["#000000"], color_mode="fixed"),
    )  # fmt: skip


def model_line(model: PreTrainedModel) -> str:
    return f"`{model.config.model_type}` · {model.num_parameters():,} {TEXTS('parameters')}"


def class_tab(page: gr.Blocks, classifier: Classifier) -> None:
    """Build the tab of the classifier."""

    def seen(image: Image.Image, request: gr.Request) -> tuple[str, str]:
        """Return the classes of an image, and the page with its heat maps in a frame."""
        reading = read_image("The model", classifier.model, classifier.processor, image)
        return answer(classifier.probabilities(image)), maps_of(reading, request)

    def draw(drawing: dict[str, Any] | None, request: gr.Request) -> tuple[str, str]:
        ink = None if drawing is None or drawing["composite"] is None else digit(drawing["composite"])
        if ink is None:
            TEXTS.refuse(request, "no_drawing")
        return seen(ink, request)

    def welcome(request: gr.Request) -> tuple[str, str]:
        return draw({"composite": example()}, request)

    def drop(path: str | None, request: gr.Request) -> tuple[str, str, None]:
        """Return what ``seen`` does, and nothing for the file, which is deleted."""
        return *seen(uploaded(path, request), request), None

    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=320):
            gr.Markdown(TEXTS.toy("heading_class", "toy_class") if classifier.toy else TEXTS("heading_class"))
            gr.Markdown(model_line(classifier.model), elem_classes="quiet")
            with gr.Tab(TEXTS("draw")):
                drawing = sketchpad("drawing", example())
                reading = gr.Button(TEXTS("read"), variant="primary")
            with gr.Tab(TEXTS("drop")):
                dropped = image_file()
            classes = gr.HTML(elem_id="classes", min_height=60)
        with gr.Column(scale=2, min_width=320):
            maps = gr.HTML(elem_id="maps", min_height=120)
    outputs = [classes, maps]
    # Progress is hidden, otherwise Gradio shows "Error" on top of the output.
    page.load(welcome, None, outputs, api_visibility="private", show_progress="hidden")
    reading.click(draw, drawing, outputs, api_name="draw", show_progress="hidden")
    dropped.upload(drop, dropped, [*outputs, dropped], api_name="drop", show_progress="hidden")


def image_file() -> gr.File:
    """Return a place to drop a file; not gr.Image, which decodes the file before it can be refused."""
    file = gr.File(label=TEXTS("image"), file_types=["image"], type="filepath", height=200)
    gr.Markdown(TEXTS("privacy"), elem_classes="quiet")
    return file


def uploaded(path: str | None, request: gr.Request) -> Image.Image:
    """Return an uploaded image, or show why there is none."""
    if path is None:
        TEXTS.refuse(request, "no_image")
    try:
        return received(path)
    except UserError:
        TEXTS.refuse(request, "bad_image", formats=", ".join(FORMATS), most=MOST_PIXELS // 1_000_000)


def caption_tab(page: gr.Blocks, captioner: Captioner) -> None:
    """Build the tab of the captioner."""

    def seen(image: Image.Image, beams: float, request: gr.Request) -> tuple[str, str]:
        """Return the captions of an image, and the page with the heat maps of the best in a frame."""
        beams = min(MOST_BEAMS, max(1, int(beams)))
        reading = read_captions(captioner.model, captioner.tokenizer, captioner.processor, image, hypotheses=beams)
        found = [(reading.answer, reading.probability or 0.0), *reading.others]
        return answer(found), maps_of(reading, request)

    def draw(drawing: dict[str, Any] | None, beams: float, request: gr.Request) -> tuple[str, str]:
        if drawing is None or drawing["composite"] is None or digit(drawing["composite"]) is None:
            TEXTS.refuse(request, "no_drawing")
        return seen(on_black(drawing["composite"]).convert("RGB"), beams, request)

    def drop(path: str | None, beams: float, request: gr.Request) -> tuple[str, str, None]:
        """Return what ``seen`` does, and nothing for the file, which is deleted."""
        return *seen(uploaded(path, request), beams, request), None

    def compose(number: float, beams: float, request: gr.Request) -> tuple[str, str, int]:
        """Return what ``seen`` does for a composed scene, and the number of the next one."""
        return *seen(scene(int(number)), beams, request), int(number) + 1

    def welcome(number: float, beams: float, request: gr.Request) -> tuple[str, str, int]:
        return compose(number, beams, request)

    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=320):
            gr.Markdown(TEXTS.toy("heading_caption", "toy_caption") if captioner.toy else TEXTS("heading_caption"))
            gr.Markdown(model_line(captioner.model), elem_classes="quiet")
            number = gr.State(0)
            with gr.Tab(TEXTS("scene")):
                composing = gr.Button(TEXTS("compose"), variant="primary")
            with gr.Tab(TEXTS("draw")):
                drawing = sketchpad("drawing_scene")
                reading = gr.Button(TEXTS("caption"), variant="primary")
            with gr.Tab(TEXTS("drop")):
                dropped = image_file()
            beams = gr.Slider(1, MOST_BEAMS, 3, step=1, label=TEXTS("beams"))
            captions = gr.HTML(elem_id="captions", min_height=60)
        with gr.Column(scale=2, min_width=320):
            maps = gr.HTML(elem_id="caption_maps", min_height=120)
    outputs = [captions, maps]
    composing.click(compose, [number, beams], [*outputs, number], api_name="compose", show_progress="hidden")
    page.load(welcome, [number, beams], [*outputs, number], api_visibility="private", show_progress="hidden")
    reading.click(draw, [drawing, beams], outputs, api_name="caption_drawing", show_progress="hidden")
    dropped.upload(drop, [dropped, beams], [*outputs, dropped], api_name="caption", show_progress="hidden")


def found_images(found: list[tuple[Image.Image, float]]) -> str:
    """Return images in a grid, each with its cosine. They are in the page, not in files of the server."""
    figures = [
        f'<figure><img alt="" src="data:image/png;base64,{as_base64(image)}"><figcaption>{number(cosine)}</figcaption>'
        "</figure>"
        for image, cosine in found
    ]
    return f'<div class="found">{"".join(figures)}</div>'


def find_tab(page: gr.Blocks, finder: Finder) -> None:
    """Build the tab of the dual encoder."""
    first = finder.embedded(digits())

    def find(text: str, pool: Pool | None, request: gr.Request) -> str:
        text = (text or "").strip()[:LONGEST_TEXT]
        if not text:
            TEXTS.refuse(request, "no_text")
        if not knows(finder.tokenizer, text):
            TEXTS.refuse(request, "unknown_text")
        return found_images(finder.nearest(text, pool or first))

    def drop(paths: list[str] | None, text: str, request: gr.Request) -> tuple[Pool, str, None]:
        """Return the images to look in, what is found there, and nothing for the files, which are deleted."""
        paths = paths or []
        if not paths:
            TEXTS.refuse(request, "no_image")
        if len(paths) > POOL:
            for path in paths:
                Path(path).unlink(missing_ok=True)
            TEXTS.refuse(request, "too_many", most=POOL)
        pool = finder.embedded([uploaded(path, request) for path in paths])
        return pool, find(text, pool, request), None

    def welcome(text: str, request: gr.Request) -> str:
        return find(text, None, request)

    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=320):
            gr.Markdown(TEXTS.toy("heading_find", "toy_find") if finder.toy else TEXTS("heading_find"))
            gr.Markdown(model_line(finder.model), elem_classes="quiet")
            pool = gr.State(None, time_to_live=3600)
            text = gr.Textbox(EXAMPLE, label=TEXTS("look_for"), max_length=LONGEST_TEXT)
            finding = gr.Button(TEXTS("find"), variant="primary")
            files = gr.File(
                label=TEXTS("look_in"), file_types=["image"], file_count="multiple", type="filepath", height=160
            )
            gr.Markdown(TEXTS("privacy_find"), elem_classes="quiet")
        with gr.Column(scale=2, min_width=320):
            images = gr.HTML(elem_id="found", min_height=120)
    page.load(welcome, text, images, api_visibility="private", show_progress="hidden")
    gr.on([finding.click, text.submit], find, [text, pool], images, api_name="find", show_progress="hidden")
    files.upload(drop, [files, text], [pool, images, files], api_name="look_in", show_progress="hidden")


def build(classifier: Classifier, captioner: Captioner, finder: Finder) -> gr.Blocks:
    """Build the page."""
    with gr.Blocks(title="Image lens", analytics_enabled=False, delete_cache=(60, 60)) as page:
        gr.Markdown(TEXTS("title"))
        gr.Markdown(TEXTS("intro"))
        with gr.Tab(TEXTS("tab_class"), id="class"):
            class_tab(page, classifier)
        with gr.Tab(TEXTS("tab_caption"), id="caption"):
            caption_tab(page, captioner)
        with gr.Tab(TEXTS("tab_find"), id="find"):
            find_tab(page, finder)
        gr.Markdown(TEXTS("limits"), elem_classes="quiet")
    return page


def main() -> None:
    with one_sentence():
        classifier = Classifier.load(load_folder("classifier", SPACE), is_toy("classifier", SPACE))
        captioner = Captioner.load(load_folder("captioner", SPACE), is_toy("captioner", SPACE))
        finder = Finder.load(load_folder("finder", SPACE), is_toy("finder", SPACE))
    script = (SPACE / "lens.js").read_text(encoding="utf-8")
    launch(build(classifier, captioner, finder), TEXTS, CSS, head=f"<script>{script}</script>", max_file_size="20mb")


if __name__ == "__main__":
    main()
