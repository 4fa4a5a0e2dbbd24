"""Images are read from every source, decoded safely, changed as their fields say, and encoded as a processor does."""

import gzip
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features
from datasets import Image as ImageFeature
from huggingface_hub.errors import StrictDataclassError
from PIL import Image
from transformers import (
    BaseImageProcessor,
    BitImageProcessorPil,
    ConvNextImageProcessorPil,
    EfficientNetImageProcessorPil,
    MobileViTImageProcessorPil,
)

from hfattn.data import (
    CaptionedDataConfig,
    CaptionedImages,
    EncodedCaptions,
    EncodedImages,
    ImageAugmentationConfig,
    ImageCollator,
    ImageDataConfig,
    LabeledImages,
    input_size,
    make_processor,
    open_image,
    processed,
    read_captioned_images,
    read_images,
    unlabeled_images,
)
from hfattn.data.image_augmentation import Augmentation, erased, mixed, random_crop, shifted
from hfattn.data.images import CaptionedImage, check_image
from hfattn.errors import UserError
from hfattn.loading import ModelLocation, load_image_processor
from hfattn.tokenizers import TokenizerConfig, build_tokenizer

RANDOM = np.random.default_rng(0)


def picture(color: int = 0, size: tuple[int, int] = (6, 4)) -> Image.Image:
    """A picture of noise around a color."""
    return Image.fromarray(np.clip(RANDOM.integers(0, 40, (*size[::-1], 3)) + color, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def write_idx(folder: Path, prefix: str, images: np.ndarray, labels: np.ndarray) -> None:
    for what, values in (("images-idx3", images), ("labels-idx1", labels)):
        head = np.array([0x0800 + values.ndim, *values.shape], ">u4").tobytes()
        (folder / f"{prefix}-{what}-ubyte.gz").write_bytes(gzip.compress(head + values.tobytes()))


@pytest.fixture
def idx(tmp_path: Path) -> Path:
    folder = tmp_path / "digits"
    folder.mkdir()
    for prefix, number in (("train", 40), ("t10k", 8)):
        images = RANDOM.integers(0, 256, (number, 5, 7), dtype=np.uint8)
        write_idx(folder, prefix, images, (np.arange(number) % 4).astype(np.uint8))
    return folder


def test_idx_files(idx: Path) -> None:
    config = ImageDataConfig(dataset=str(idx), test="test", split=[0.8, 0.2])
    parts = config.read_parts(1)
    assert [len(parts[part]) for part in ("train", "validation", "test")] == [32, 8, 8]
    assert parts["test"].labels == ["0", "1", "2", "3"]
    assert [item.label for item in parts["test"]] == [0, 1, 2, 3] * 2
    assert sorted(item.label for item in parts["validation"]) == [0, 0, 1, 1, 2, 2, 3, 3]  # stratified
    opened = open_image(parts["test"].items[0].image)
    assert opened.mode == "RGB"
    assert opened.size == (7, 5)
    assert "classes in train: 0 8, 1 8, 2 8, 3 8" in config.report(parts).facts
    with pytest.raises(UserError, match=r"digits has no images of 'dev'; its parts are test, train, write one of them"):
        read_images(str(idx), split="dev")
    path = idx / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))
    with pytest.raises(UserError, match=r"t10k-images-idx3-ubyte.gz is not a complete IDX file with 3 dimensions"):
        read_images(str(idx), split="test")


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    folder = tmp_path / "animals"
    for part, name in itertools.product(("train", "test"), ("cat", "dog")):
        (folder / part / name).mkdir(parents=True)
        for number in range(3):
            picture(size=(6 + number, 4)).save(folder / part / name / f"{number}.png")
    images = read_images(str(folder), split="test")
    assert images.labels == ["cat", "dog"]
    assert [item.label for item in images] == [0, 0, 0, 1, 1, 1]
    assert isinstance(images.items[0].image, bytes | Path)  # not decoded
    assert {open_image(item.image).size for item in images} == {(6, 4), (7, 4), (8, 4)}
    report = ImageDataConfig(dataset=str(folder), test="test", split=[0.5, 0.5]).report()
    assert any(fact.startswith("pixels of an image in train: 6 × 4") for fact in report.facts)


def test_a_part_is_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, number in (("train", 6), ("held_out", 2), ("animals/test", 4), ("animals/train", 3), ("test", 5)):
        for name in ("cat", "dog"):
            (tmp_path / folder / name).mkdir(parents=True)
            for i in range(number):
                picture(number * 10 + i).save(tmp_path / folder / name / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    others = ImageDataConfig(dataset="train", test="held_out", split=[0.5, 0.5]).read_parts(1)
    assert len(others["test"]) == 4
    own = ImageDataConfig(dataset="animals", test="test", split=[0.5, 0.5]).read_parts(1)
    assert len(own["test"]) == 8  # the split of the folder comes first


def test_rows_with_paths_bytes_and_datasets(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    picture(100).save(tmp_path / "images" / "a.png")
    rows = [{"file": "images/a.png", "label": "x"}, {"file": "images/a.png", "label": "y"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    images = read_images(str(tmp_path / "rows.jsonl"), image_column="file")
    assert images.labels == ["x", "y"]
    assert open_image(images.items[1].image).size == (6, 4)

    features = Features({"image": ImageFeature(), "label": ClassLabel(names=["no", "yes"])})
    dataset = Dataset.from_dict({"image": [picture(10), picture(200)], "label": [1, 0]}, features)
    dataset.to_parquet(tmp_path / "rows.parquet")
    for source in (dataset, DatasetDict(train=dataset), str(tmp_path / "rows.parquet")):
        images = read_images(source)
        assert images.labels == ["no", "yes"]
        assert [item.label for item in images] == [1, 0]
        assert images.fingerprint == read_images(dataset).fingerprint
    with pytest.raises(UserError, match=r"has no column 'img'; write one of image, label in data.image_column"):
        read_images(dataset, image_column="img")
    # A dataset that is not a local file must not name files of the machine.
    for image in (str(tmp_path / "images" / "a.png"), {"path": str(tmp_path / "images" / "a.png")}):
        with pytest.raises(UserError, match="has no image in 'image'"):
            read_images(Dataset.from_dict({"image": [image], "label": [0]}))


def test_images_in_json_lines_may_be_objects_with_a_path(tmp_path: Path) -> None:
    picture(100).save(tmp_path / "a.png")
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"image": {"path": "a.png"}, "text": "A dog."}))
    assert read_captioned_images(str(file)).items[0].image == tmp_path / "a.png"
    file.write_text(json.dumps({"image": {"path": None}, "text": "A dog."}))
    with pytest.raises(UserError, match=r"Line 1 of rows\.jsonl has no image in 'image'"):
        read_captioned_images(str(file))


def test_captions(tmp_path: Path) -> None:
    dataset = Dataset.from_dict(
        {
            "image": [encoded(picture(c)) for c in (0, 50, 100, 150)],
            "text": [["A dog.", "One dog."], ["B"], ["C"], ["D"]],
        }
    )
    images = read_captioned_images(dataset)
    assert [item.text for item in images] == ["A dog.", "One dog.", "B", "C", "D"]
    parts = CaptionedDataConfig(dataset="given in Python", split=[0.5, 0.5]).read_parts(1, dataset)
    assert {len({item.line for item in part}) for part in parts.values()} == {2}  # texts of an image stay together
    for text in ("", [], ["A dog.", " "]):
        said = re.escape(f"Row 0 of the given dataset has {text!r} in 'text'; write a text, or remove the row")
        with pytest.raises(UserError, match=said):
            read_captioned_images(Dataset.from_list([{"image": encoded(picture()), "text": text}]))


def test_texts_in_the_metadata_of_a_folder_are_read_as_they_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
        for number in range(3):
            picture().save(folder / part / f"{number}.png")
    lines = ["file_name,text,label", "2.png,NA,01", "0.png,12,02", '1.png,"null",02']
    for part in ("train", "test"):
        (folder / part / "metadata.csv").write_text("\n".join(lines))
    images = read_captioned_images(str(folder), split="test")
    assert [item.text for item in images] == ["NA", "12", "null"]
    assert [item.image for item in images] == [folder / "test" / f"{number}.png" for number in (2, 0, 1)]
    assert [item.line for item in images] == [0, 1, 2]
    assert read_images(str(folder)).labels == ["01", "02"]
    with pytest.raises(UserError, match="pets does not load"):
        read_images(str(folder), split="dev")
    for content, message in (
        ("file_name,text\n../train/0.png,A dog.", "has '../train/0.png' in 'file_name'; write the path of an image"),
        ("image,text\n0.png,A dog.", "has no column 'file_name'; write the paths of the images there"),
    ):
        (folder / "test" / "metadata.csv").write_text(content)
        with pytest.raises(UserError, match=rf"^Record 1 of metadata\.csv {re.escape(message)}"):
            read_captioned_images(str(folder), split="test")


def test_equal_images_go_into_one_part_or_leave_training() -> None:
    files = [encoded(picture(i % 20)) for i in range(20)]
    dataset = Dataset.from_dict({"image": files * 2, "label": [0, 1] * 20})
    parts = ImageDataConfig(dataset="given in Python", split=[0.5, 0.5]).read_parts(1, dataset)
    train, validation = ({item.image for item in part} for part in parts.values())
    assert not train & validation
    given = DatasetDict(train=dataset, validation=dataset.select([0, 1]), test=dataset.select([2, 3]))
    config = ImageDataConfig(dataset="given in Python")
    assert "2 images of test are in train too: data.duplicates: drop" in config.report(given=given).warnings
    config = ImageDataConfig(dataset="given in Python", duplicates="drop", train_size=10)
    parts = config.read_parts(1, given)
    assert len(parts["train"]) == 10
    assert not {x.image for x in parts["train"]} & set(files[:4])
    with pytest.raises(UserError, match=r"All training images of .* are also in another part"):
        config.read_parts(1, DatasetDict(train=dataset, validation=dataset))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no image", "The image in row 1 of the given dataset is not an image in the format BMP, GIF, JPEG"),
        (encoded(Image.new("1", (20_000, 20_000))), r"has more than 50,000,000 pixels; make it smaller"),
        (encoded(Image.new("1", (10_000, 10_000))), r"has 10,000 × 10,000 pixels, more than 50,000,000; make it"),
    ],
)
def test_what_is_not_an_image_is_refused_with_its_row(content: bytes, message: str) -> None:
    assert len(content) < 100_000
    with pytest.raises(UserError, match=message):
        read_images(Dataset.from_dict({"image": [encoded(picture()), content], "label": [0, 1]}))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_a_damaged_image_is_refused_when_it_is_read_and_when_it_is_decoded(kind: str, tmp_path: Path) -> None:
    """The header of such a file is whole. Messages name the file, if it has a path."""
    content = encoded(picture(size=(600, 400)), kind)[:-1000]
    with pytest.raises(UserError, match=r"^The image is damaged \(.*\); save it again, or remove it"):
        open_image(content)
    with pytest.raises(UserError, match=r"^The image in row 1 of the given dataset is damaged \("):
        read_images(Dataset.from_dict({"image": [encoded(picture(), kind), content], "label": [0, 1]}))
    for part, name in itertools.product(("train", "test"), ("cat", "dog")):
        (tmp_path / "pets" / part / name).mkdir(parents=True)
        for number in range(2):
            picture(size=(6, 4)).save(tmp_path / "pets" / part / name / f"{number}.{kind.lower()}")
    path = tmp_path / "pets" / "test" / "dog" / f"0.{kind.lower()}"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"^The image {re.escape(str(path))} is damaged \("):
        open_image(path)
    config = ImageDataConfig(dataset=str(tmp_path / "pets"), test="test", split=[0.5, 0.5])
    with pytest.raises(UserError, match=rf"^The image {re.escape(str(path))} in row 2 of pets is damaged \("):
        config.read_parts(1)


def test_reading_does_not_change_the_images_of_the_caller(tmp_path: Path) -> None:
    picture(size=(600, 400)).save(tmp_path / "a.jpg")
    with Image.open(tmp_path / "a.jpg") as image:
        check_image(image)
        assert image.size == (600, 400)


def test_pixels_of_32_bits_are_scaled_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    Image.fromarray(np.array([[0, 256, 65535]], np.int32)).save(path)
    assert np.asarray(open_image(path))[0, :, 0].tolist() == [0, 1, 255]
    for pixels, message in (
        (np.array([[-1, 70_000]], np.int32), "has pixels from -1 to 70,000, which are not of 16 bits"),
        (np.array([[0.0, 0.5]], np.float32), "has floating-point pixels, whose range is unknown"),
    ):
        Image.fromarray(pixels).save(path)
        with pytest.raises(UserError, match=f"^The image {re.escape(str(path))} {message}; save it with 8 or 16 bits"):
            open_image(path)
        with pytest.raises(UserError, match=r"^The image in row 0 of .*; save it with 8 or 16 bits"):
            read_images(Dataset.from_dict({"image": [path.read_bytes()], "label": [0]}))


def test_images_are_decoded_upright_opaque_and_without_metadata() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a camera"  # to be turned by 90 degrees; its maker
    left_red = Image.fromarray(
        np.concatenate([np.full((8, 8, 3), (255, 0, 0)), np.zeros((8, 8, 3))], 1).astype(np.uint8)
    )
    upright = open_image(encoded(left_red, "JPEG", exif=exif, quality=95))
    assert upright.size == (8, 16)
    assert not upright.getexif()
    assert not upright.info
    assert np.asarray(upright)[2, 4, 0] > 200 > 50 > np.asarray(upright)[13, 4, 0]  # the left side is at the top

    half = Image.new("RGBA", (2, 1), (10, 20, 30, 255))
    half.putpixel((1, 0), (10, 20, 30, 0))
    assert np.asarray(open_image(encoded(half), background=(1, 2, 3))).tolist() == [[[10, 20, 30], [1, 2, 3]]]
    deep = Image.fromarray(np.array([[0, 256, 65535]], np.uint16))
    assert np.asarray(open_image(encoded(deep)))[0, :, 0].tolist() == [0, 1, 255]
    assert open_image(encoded(Image.new("P", (3, 3)))).mode == "RGB"


def test_training_images_without_changes_equal_the_processor() -> None:
    processor = make_processor((4, 6), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    images = unlabeled_images([picture(), picture(90)])
    plain, changed = (
        EncodedImages(images, processor),
        EncodedImages(images, processor, augmentation=ImageAugmentationConfig()),
    )
    for index in range(2):
        torch.testing.assert_close(changed[index]["pixel_values"], plain[index]["pixel_values"])
    assert processed([picture(size=(60, 60))], processor).shape == (1, 3, 4, 6)
    assert input_size(processor) == (4, 6)
    processor.size = {"shortest_edge": 4}
    with pytest.raises(UserError, match="so images have different sizes"):
        input_size(processor)


# Processors of pretrained models, for images of 8 x 8 pixels.
PRETRAINED: dict[str, BaseImageProcessor] = {
    "mobilevit": MobileViTImageProcessorPil(size={"shortest_edge": 12}, crop_size={"height": 8, "width": 8}),
    "efficientnet": EfficientNetImageProcessorPil(
        size={"height": 8, "width": 8}, rescale_factor=1 / 127.5, rescale_offset=True
    ),
    "convnext": ConvNextImageProcessorPil(size={"shortest_edge": 8}),
    "dinov2": BitImageProcessorPil(size={"shortest_edge": 10}, crop_size={"height": 8, "width": 8}),
}


@pytest.mark.parametrize("name", PRETRAINED)
@pytest.mark.parametrize("config", [ImageAugmentationConfig(), ImageAugmentationConfig(mixup=0.2, blur_radius=1.0)])
def test_unchanged_training_images_are_exactly_what_a_pretrained_processor_makes(
    name: str, config: ImageAugmentationConfig
) -> None:
    processor, pictures = PRETRAINED[name], [picture(90, (20, 14)), picture(30, (8, 8))]
    train = EncodedImages(unlabeled_images(pictures), processor, augmentation=config)
    assert input_size(processor) == (8, 8)
    for index, each in enumerate(pictures):
        assert torch.equal(train[index]["pixel_values"], processor(each, return_tensors="pt")["pixel_values"][0])


@pytest.mark.parametrize("name", PRETRAINED)
def test_changed_training_images_end_as_a_pretrained_processor_ends(name: str) -> None:
    """Its filter resizes them, and it rescales, normalizes and orders the channels."""
    processor, source = PRETRAINED[name], picture(90, (20, 14))
    config = ImageAugmentationConfig(flip=1.0)
    found = EncodedImages(unlabeled_images([source]), processor, augmentation=config)[0]["pixel_values"]
    pixels = np.asarray(source.resize((8, 8), Image.Resampling.BICUBIC))[:, ::-1].transpose(2, 0, 1) / 255
    mean, std = (np.array(values)[:, None, None] for values in (processor.image_mean, processor.image_std))
    expected = {
        "mobilevit": pixels[::-1],
        "efficientnet": (2 * pixels - 1 - mean) / std / std,
    }.get(name, (pixels - mean) / std)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("name", PRETRAINED)
def test_images_with_captions_are_what_a_pretrained_processor_makes(name: str) -> None:
    """Also those that have the size of the model before the processor reads them."""
    pictures = [picture(90, (20, 14)), picture(30, (8, 8))]
    images = CaptionedImages("x", [CaptionedImage(each, "a picture") for each in pictures])
    tokenizer = build_tokenizer(TokenizerConfig(kind="word"), ["a picture"], ends=True)
    train = EncodedCaptions(images, tokenizer, PRETRAINED[name], 8, augmentation=ImageAugmentationConfig())
    for index, each in enumerate(pictures):
        assert torch.equal(train[index]["pixel_values"], processed([each], PRETRAINED[name])[0])


def test_changed_images_of_models_from_scratch_keep_the_pixels_of_recorded_runs() -> None:
    """To the last bit."""
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    processor, source = make_processor((8, 8), mean, std), picture(60, (20, 14))
    config = ImageAugmentationConfig(flip=1.0)
    found = EncodedImages(unlabeled_images([source]), processor, augmentation=config)[0]["pixel_values"]
    pixels = np.array(source.resize((8, 8), Image.Resampling.BILINEAR))[:, ::-1].transpose(2, 0, 1)
    scaled = torch.from_numpy(pixels.astype(np.float32)) * (1 / 255)
    assert torch.equal(found, (scaled - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None])


@pytest.mark.parametrize("name", PRETRAINED)
def test_a_pretrained_processor_keeps_all_but_its_size(name: str, tmp_path: Path) -> None:
    """With another size, whole images are resized by its filter, or cropped where the type of the processor does it."""
    PRETRAINED[name].save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    location, source = ModelLocation(name=str(tmp_path)), picture(90, (20, 14))
    found = load_image_processor(location, 6)
    own, sizes = PRETRAINED[name].to_dict(), {"size", "crop_size", "do_center_crop"}
    assert {field: value for field, value in found.to_dict().items() if field not in sizes} == {
        field: value for field, value in own.items() if field not in sizes
    }
    assert processed([source], found).shape == (1, 3, 6, 6)
    assert input_size(found) == (6, 6)
    if name == "convnext":
        with pytest.raises(UserError, match="makes images of 6 x 6 pixels when 6 x 4 are asked for; write another"):
            load_image_processor(location, [6, 4])
    else:
        resized = source.resize((4, 6), Image.Resampling.BICUBIC)
        wanted = PRETRAINED[name](resized, do_resize=False, do_center_crop=False, return_tensors="pt")
        assert torch.equal(processed([source], load_image_processor(location, [6, 4])), wanted["pixel_values"])


def test_random_changes_depend_on_seed_epoch_and_index_alone() -> None:
    every = ImageAugmentationConfig(
        shift=1, crop_scale=0.5, flip=0.5, rotation=10, jitter=0.4, grayscale=0.2, blur=0.5, solarize=0.3, erasing=0.5
    )
    images = LabeledImages("x", unlabeled_images([picture(size=(16, 16))] * 3).items, labels=["image"])
    processor = make_processor((8, 8), (0.5,) * 3, (0.5,) * 3)

    def drawn(seed: int, epoch: int, index: int) -> torch.Tensor:
        dataset = EncodedImages(images, processor, augmentation=every, seed=seed)
        dataset.set_epoch(epoch)
        pixels: torch.Tensor = dataset[index]["pixel_values"]
        return pixels

    torch.testing.assert_close(drawn(1, 2, 0), drawn(1, 2, 0), rtol=0, atol=0)
    for other in ((2, 2, 0), (1, 3, 0), (1, 2, 1)):
        assert not torch.equal(drawn(1, 2, 0), drawn(*other))


def test_each_change_does_what_its_field_says() -> None:
    image = picture(100, (8, 6))
    pixels = np.asarray(image)

    def changed(**fields: Any) -> np.ndarray:
        return np.asarray(Augmentation(ImageAugmentationConfig(**fields), (6, 8))(image, np.random.default_rng(3)))

    assert (changed() == pixels).all()
    assert (changed(flip=1.0) == pixels[:, ::-1]).all()
    assert (changed(solarize=1.0) == np.where(pixels < 128, pixels, 255 - pixels)).all()
    assert np.ptp(changed(grayscale=1.0), axis=-1).max() == 0
    assert changed(blur=1.0, blur_radius=200).std() < pixels.std()
    assert np.asarray(shifted(image, 2, -1))[0, 2].tolist() == pixels[1, 0].tolist()
    assert np.asarray(shifted(image, 2, -1))[0, 0].tolist() == pixels[1, 0].tolist()  # the nearest pixel
    share = (np.asarray(erased(image, np.random.default_rng(1))) != pixels).any(-1).mean()
    assert 0.02 <= share <= 0.5
    dark = changed(jitter=0.9)
    assert dark.shape == pixels.shape
    assert abs(dark.mean() - pixels.mean()) > 1


def test_random_crops_have_the_area_and_ratio_that_are_asked_for() -> None:
    coordinates = np.stack(np.meshgrid(np.arange(200), np.arange(100)), -1).astype(np.uint8)
    image = Image.fromarray(np.concatenate([coordinates, np.zeros((100, 200, 1), np.uint8)], -1))
    random, shares = np.random.default_rng(0), []
    for _ in range(50):
        crop = np.asarray(random_crop(image, (10, 20), 0.1, 4 / 3, random, most=0.4)).astype(float)
        width, height = np.ptp(crop[..., 0]) * 20 / 19, np.ptp(crop[..., 1]) * 10 / 9
        shares.append(width * height / 20_000)
        assert 2 * 0.7 < width / height < 2 * 1.45
    assert 0.08 < min(shares) < 0.15
    assert 0.3 < max(shares) < 0.45


def test_mixtures_keep_the_share_of_each_class() -> None:
    """The mean of mixed images of constant color is the mixture of their targets."""
    colors = torch.arange(6.0)[:, None, None, None].expand(6, 3, 8, 8)
    targets = torch.eye(6)
    for field in ("mixup", "cutmix"):
        options: dict[str, Any] = {field: 1.0}
        config = ImageAugmentationConfig(**options)
        pixel_values, shares = mixed(colors, targets, config, np.random.default_rng(4))
        torch.testing.assert_close(pixel_values.mean((1, 2, 3)), shares @ torch.arange(6.0))
        torch.testing.assert_close(shares.sum(1), torch.ones(6))
        assert (shares.max(1).values < 1).any()
    assert (colors[:, 0, 0, 0] == torch.arange(6.0)).all()  # the batch itself is not changed


def test_the_collator_mixes_training_images_only() -> None:
    images = LabeledImages(
        "x", [item._replace(label=i) for i, item in enumerate(unlabeled_images([picture()] * 2))], labels=["a", "b"]
    )
    processor, config = make_processor((4, 6), (0.5,) * 3, (0.5,) * 3), ImageAugmentationConfig(mixup=0.5)
    collate = ImageCollator(2, config)
    train, test = EncodedImages(images, processor, augmentation=config), EncodedImages(images, processor)
    assert collate([train[0], train[1]])["labels"].shape == (2, 2)
    assert collate([test[0], test[1]])["labels"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"flip": 1.5}, "is 1.5; write a number from 0 to 1."),
        ({"crop_scale": 0.0}, "write a number above 0, at most 1"),
    ],
)
def test_fields_out_of_range_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(StrictDataclassError, match=re.escape(message)):
        ImageAugmentationConfig(**fields)


def test_a_background_that_is_not_a_color_is_refused() -> None:
    with pytest.raises(StrictDataclassError, match="write three numbers from 0 to 255"):
        ImageDataConfig(dataset="x", background=[1, 2])


def test_a_class_that_is_missing_from_a_part_is_reported_in_words_of_images() -> None:
    files = [encoded(picture(i)) for i in range(9)]
    given = Dataset.from_dict({"image": files, "label": ["cat"] * 8 + ["dog"]})
    message = (
        r"^The class 'dog' has 1 of the images of the given dataset, and none is in .*; add images, write larger parts "
        r"in data\.split, or merge the class with another in the data\.$"
    )
    with pytest.raises(UserError, match=message):
        ImageDataConfig(dataset="given in Python", split=[0.5, 0.5]).read_parts(1, given)
