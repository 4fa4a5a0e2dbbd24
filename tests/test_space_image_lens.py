"""Image lens: tested over HTTP and in a browser."""

import base64
import io
import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser import browser as browser
from browser import visited
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image
from playwright.sync_api import Browser
from space_server import cache as cache
from space_server import served
from space_server import user as user
from tiny_models import tiny_dual_encoder
from transformers import ViTImageProcessorPil

from hfattn import (
    ShowAttendTellConfig,
    ShowAttendTellForConditionalGeneration,
    VaswaniVisionConfig,
    VaswaniVisionForImageClassification,
)
from hfattn.data import open_image
from hfattn.explaining import AttentionRecord, read_captions, read_image
from hfattn.loading import load_any_model, load_captioner
from hfattn.retrieval import embed_images, embed_texts, load_dual_encoder
from hfattn.spaces.interface import number
from hfattn.tokenizers import TokenizerConfig, build_tokenizer


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A classifier, a captioner and a dual encoder with random weights that tell images apart."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    config = VaswaniVisionConfig(
        image_size=16, patch_size=4, hidden_size=16, intermediate_size=16, num_attention_heads=2, encoder_layers=2,
        id2label={0: "zero", 1: "one", 2: "two"},
    )  # fmt: skip
    classifier = VaswaniVisionForImageClassification(config)
    with torch.no_grad():
        for parameter in classifier.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.4)
    tokenizer = build_tokenizer(TokenizerConfig(kind="word"), ["a two above a one", "a one left of a two"], ends=True)
    captioner = ShowAttendTellForConditionalGeneration(
        ShowAttendTellConfig(
            vocab_size=len(tokenizer), embedding_size=4, hidden_size=5, annotation_size=8, channels=[3, 4],
            initializer_range=1.0,
        )
    )  # fmt: skip
    captioner.generation_config.max_new_tokens, captioner.generation_config.max_length = 5, None
    captioner.generation_config.min_new_tokens = 5
    made: dict[str, Any] = {"classifier": classifier, "captioner": captioner}
    paths = {name: folder / name for name in made}
    for name, model in made.items():
        model.save_pretrained(paths[name])
        ViTImageProcessorPil(size={"height": 16, "width": 16}, do_convert_rgb=True).save_pretrained(paths[name])
    tokenizer.save_pretrained(paths["captioner"])
    return {**paths, "finder": tiny_dual_encoder(folder / "finder")}


@pytest.fixture(scope="module")
def url(models: dict[str, Path], cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    space = tmp_path_factory.mktemp("spaces") / "lens"
    with served("image_lens", space, models, cache) as address:
        yield address


def upright(path: Path) -> Path:
    """A photograph that lies on its side, with its place in the metadata of its file."""
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "where I live"
    Image.fromarray(pixels).resize((1400, 1050)).save(path, exif=exif, quality=95)
    return path


def files(cache: Path) -> set[Path]:
    """The files of the server that are not empty; the first drawing is one of them."""
    return {path for path in cache.rglob("*") if path.is_file() and path.stat().st_size}


def views(shown: str) -> dict[str, Any]:
    """The data of the page in a frame."""
    page = shown.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&#x27;", "'")
    page = page.replace("&amp;", "&")
    return json.loads(re.findall(r'id="record">(.*?)</script>', page, re.DOTALL)[0])


def test_the_answer_is_that_of_the_model_and_no_file_is_left(
    user: Client, models: dict[str, Path], cache: Path, tmp_path: Path
) -> None:
    photo, before = upright(tmp_path / "photo.jpg"), files(cache)
    answer, maps, _ = user.predict(path=handle_file(photo), api_name="/drop")
    model, processor, _ = load_any_model(str(models["classifier"]))
    image = open_image(photo)
    image.thumbnail((1024, 1024))
    reading = read_image("model", model, processor, image)
    with torch.no_grad():
        shares = model(**processor(image, return_tensors="pt")).logits[0].softmax(-1)
    best = shares.sort(descending=True)
    assert re.findall(r">([\d.]+%)</span>", answer) == [f"{share:.1%}" for share in best.values.tolist()]
    found = views(maps)
    assert [view["name"] for view in found["views"]] == ["attention", "rollout", "gradient"]
    assert found["views"][2]["target"] == reading.answer
    record = reading.views["attention"]
    assert isinstance(record, AttentionRecord)
    weights = record.weights[:, :, 0, 1:]
    np.testing.assert_allclose(found["views"][0]["largest"], weights.amax(-1).flatten(), rtol=2e-3)
    assert files(cache) == before


def test_a_drawing_is_cut_out_and_inverted(user: Client, tmp_path: Path) -> None:
    """A square of ink anywhere on the paper is the same to the model: light on black, in the middle."""
    answers = []
    for left in (20, 150):
        drawing = Image.new("RGBA", (280, 280))
        drawing.paste("black", (left, 40, left + 100, 140))
        drawing.save(tmp_path / "drawing.png")
        value = {"background": None, "layers": [], "composite": handle_file(tmp_path / "drawing.png")}
        answer, maps = user.predict(drawing=value, api_name="/draw")
        answers.append(answer)
        seen = Image.open(io.BytesIO(base64.b64decode(views(maps)["image"].split(",")[1])))
        pixels = np.asarray(seen).astype(int)
        assert pixels[8, 8].min() > 240
        assert pixels[0].max() < 200
    assert answers[0] == answers[1]


def test_a_caption_has_a_map_for_each_word(user: Client, models: dict[str, Path], tmp_path: Path) -> None:
    photo = upright(tmp_path / "photo.jpg")
    answer, maps, _ = user.predict(path=handle_file(photo), beams=2, api_name="/caption")
    image = open_image(photo)
    image.thumbnail((1024, 1024))
    reading = read_captions(*load_captioner(str(models["captioner"])), image, hypotheses=2)
    known = [reading.answer, *(text for text, _ in reading.others)]
    assert re.findall(r"<span(?: class=\"best\")?>([^<]*)</span>", answer) == known
    found = views(maps)
    record = reading.views["attention"]
    assert isinstance(record, AttentionRecord)
    assert tuple(found["words"]) == record.target_tokens
    assert [view["name"] for view in found["views"]] == ["attention", "gradient"]
    first, second = (user.predict(beams=1, api_name="/compose")[1] for _ in range(2))
    assert views(first)["image"] != views(second)["image"]


def test_the_images_that_are_nearest_to_a_text(
    user: Client, models: dict[str, Path], cache: Path, tmp_path: Path
) -> None:
    """First digits, then the images of this user, whose files are deleted; another user still sees digits."""
    before, colors, paths = files(cache), ("red", "green", "blue", "white"), []
    for color in colors:
        paths.append(tmp_path / f"{color}.png")
        Image.new("RGB", (400, 400), color).save(paths[-1])
    digits = user.predict(text="a good film", api_name="/find")
    assert digits.count("<figure>") == 12
    shown, _ = user.predict(paths=[handle_file(path) for path in paths], text="a good film", api_name="/look_in")
    assert files(cache) == before
    model, tokenizer, processor = load_dual_encoder(str(models["finder"]))
    images = [open_image(path) for path in paths]
    cosines = embed_images(model, processor, images) @ embed_texts(model, tokenizer, ["a good film"])[0]
    expected = cosines.sort(descending=True)
    assert re.findall(r"<figcaption>(.*?)</figcaption>", shown) == [
        number(cosine) for cosine in expected.values.tolist()
    ]
    found = [Image.open(io.BytesIO(base64.b64decode(each))) for each in re.findall(r'base64,([^"]+)"', shown)]
    assert [image.size for image in found] == [(160, 160)] * 4
    assert [image.getpixel((0, 0)) for image in found] == [
        images[i].getpixel((0, 0)) for i in expected.indices.tolist()
    ]
    assert user.predict(text="a good film", api_name="/find") == shown
    assert Client(user.src, verbose=False).predict(text="a good film", api_name="/find") == digits
    with pytest.raises(AppError, match="There is nothing to look for; write a word first"):
        user.predict(text=" ", api_name="/find")
    with pytest.raises(AppError, match="The model does not know these words"):
        user.predict(text="子猫 子犬", api_name="/find")


def bomb(path: Path) -> Path:
    """A PNG file of a few bytes that claims 30,000 x 30,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    path.write_bytes(data)
    return path


def test_what_is_refused(user: Client, url: str, cache: Path, tmp_path: Path) -> None:
    text, before = tmp_path / "text.png", files(cache)
    text.write_text("no image")
    spanish = Client(url, verbose=False, headers={"Accept-Language": "es"})
    for path in (bomb(tmp_path / "bomb.png"), text):
        for client, message in (
            (user, r"The file cannot be read as an image in the format BMP, .* with at most 50 million pixels; use"),
            (
                spanish,
                r"El archivo no se puede leer como una imagen en formato BMP, .* de hasta 50 millones de píxeles",
            ),
        ):
            with pytest.raises(AppError, match=message):
                client.predict(path=handle_file(path), api_name="/drop")
    assert files(cache) == before
    empty: dict[str, Any] = {"background": None, "layers": [], "composite": None}
    with pytest.raises(AppError, match="Aún no hay ningún dibujo; dibuja primero una cifra"):
        spanish.predict(drawing=empty, api_name="/draw")


def test_a_reader_sees_the_heat_maps(browser: Browser, url: str, tmp_path: Path) -> None:
    """In Spanish, on a phone: first those of the drawing that is there, then those of an upload."""
    with visited(browser, url, "es-ES", 390, also=("about:",)) as page:
        frame = page.frame_locator("#maps iframe")
        frame.locator("#thumbs button").nth(1).focus()
        assert frame.locator("#readout").inner_text().startswith("Atención (capa 1, cabeza 2): sobre todo en fila ")
        assert page.locator("#classes .best").count() == 1
        page.get_by_role("tab", name="Soltar una imagen").first.click()
        page.evaluate("document.querySelector('#maps iframe').title = ''")
        page.locator("input[type=file]:visible, input[type=file]").nth(1).set_input_files(
            upright(tmp_path / "photo.jpg")
        )
        page.locator("#maps iframe[title^='Lo que miró: ']").wait_for()
        assert frame.locator("#views canvas").count() == 3


def test_the_page_starts_with_what_is_found_for_its_text(browser: Browser, url: str) -> None:
    with visited(browser, url, "es-ES", 1200) as page:
        page.get_by_role("tab", name="Encontrarla").click()
        text = page.get_by_label("¿Qué buscas?").input_value()
        page.locator("#found figure").first.wait_for()
        shown = page.locator("#found figcaption").all_inner_texts()
    found = Client(url, verbose=False).predict(text=text, api_name="/find")
    assert shown == re.findall(r"<figcaption>(.*?)</figcaption>", found)
