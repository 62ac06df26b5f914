import io
import pickle
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from support.errors import refused
from support.small_copies import paint
from uncollapse.data.images import Decoding, FileSource, UnreadableImageError, decode
from uncollapse.data.listing import ImageRef


def decoded(image, size, channels=3, fit="stretch", save=None, **options):
    """The image, or the array, through a PNG file in memory."""
    file = io.BytesIO()
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    image.save(file, "PNG", **(save or {}))
    return decode(file.getvalue(), Decoding(size, channels, fit, **options))


@pytest.mark.parametrize(
    ("mode", "by_channels"),
    [
        ("RGB", {3: None, 1: "colour"}),
        ("L", {1: None, 3: "grey"}),
        ("1", {1: None, 3: "grey"}),
        ("P", {3: "palette"}),
        ("RGBA", {3: "alpha"}),
        ("LA", {3: "alpha", 1: "alpha"}),
    ],
)
def test_every_mode_becomes_the_channels_asked_for_and_says_so(tmp_path, mode, by_channels):
    path = paint(tmp_path / "a.png", mode)
    for channels, was in by_channels.items():
        array, kind = decode(path, Decoding((10, 12), channels))
        assert (array.shape, array.dtype, kind) == ((channels, 10, 12), np.uint8, was)
        if mode == "RGB" and was is None:  # of the right size: kept as it is
            assert np.array_equal(array, np.moveaxis(np.asarray(Image.open(path)), 2, 0))


def test_cmyk_jpegs_become_rgb(tmp_path):
    path = tmp_path / "a.jpg"
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(path, quality=100)  # red ink
    array, was = decode(path, Decoding((16, 16)))
    assert was == "CMYK"
    red, green, blue = array.mean(axis=(1, 2))
    assert red > 250
    assert max(green, blue) < 5


def test_transparent_pixels_and_palette_colours_are_laid_over_white():
    image = Image.new("RGBA", (2, 1), (10, 20, 30, 255))
    image.putpixel((1, 0), (10, 20, 30, 0))
    array, _ = decoded(image, (1, 2))
    assert array[:, 0].T.tolist() == [[10, 20, 30], [255, 255, 255]]
    image = Image.new("P", (1, 1), 0)
    image.putpalette([9, 9, 9] * 256)
    array, was = decoded(image, (1, 1), save={"transparency": 0})
    assert was == "alpha"
    assert array.flatten().tolist() == [255, 255, 255]


def test_sixteen_bit_grey_is_scaled_not_clipped():
    array, was = decoded(np.array([[0, 32768, 65535]], dtype=np.uint16), (1, 3), 1)
    assert was is None
    assert array.flatten().tolist() == [0, 128, 255]


def test_cover_and_the_middle_are_cut_before_the_picture_is_fitted():
    pixels = np.zeros((2, 6), np.uint8)
    pixels[:, 2:4] = 200  # the middle third
    assert decoded(pixels, (2, 2), 1, "cover")[0].min() == 200
    pixels = np.arange(200, dtype=np.uint8).reshape(10, 20)
    assert np.array_equal(decoded(pixels, (6, 12), 1, middle=0.6)[0][0], pixels[2:8, 4:16])
    tiny, _ = decoded(pixels[:1, :1], (2, 2), 1, middle=0.1)
    assert np.array_equal(tiny[0], np.zeros((2, 2)))


def test_contain_keeps_everything_and_fills_with_black_also_when_ink_is_made_bright():
    pixels = np.full((2, 6), 55, np.uint8)
    for invert, value in ((False, 55), (True, 200)):
        array, _ = decoded(pixels, (6, 6), 1, "contain", invert=invert)
        assert array[0, 2:4].min() == array[0, 2:4].max() == value
        assert array[0, :2].max() == array[0, 4:].max() == 0


@given(
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    size=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    fit=st.sampled_from(["stretch", "cover", "contain"]),
)
def test_any_image_comes_out_in_the_size_asked_for(width, height, size, fit):
    array, _ = decoded(Image.new("RGB", (width, height), (9, 9, 9)), size, 3, fit)
    assert array.shape == (3, *size)
    if fit != "contain":
        assert array.min() == array.max() == 9


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.bmp"])
def test_a_truncated_file_is_unreadable_by_name(tmp_path, truncate, name):
    path = paint(tmp_path / "birds" / name, "P" if name == "a.gif" else "RGB", size=(64, 64))
    truncate(path)
    with pytest.raises(UnreadableImageError, match=rf"birds/{name} \("):
        FileSource([ImageRef(path)], Decoding((8, 8))).read(torch.tensor([0]))
    for content in (b"", b"not an image", path.read_bytes()[:3]):
        with pytest.raises(UnreadableImageError):
            decode(content, Decoding((8, 8)))


def test_images_are_read_from_zips_also_after_pickling(tmp_path):
    paint(tmp_path / "a.png", "L", seed=1)
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.write(tmp_path / "a.png", "x/a.png")
        archive.writestr("x/b.png", b"broken")
    refs = [ImageRef(tmp_path / "z.zip", "x/a.png"), ImageRef(tmp_path / "z.zip", "x/b.png")]
    source = FileSource(refs, Decoding((10, 12), 1))
    first = source.read(torch.tensor([0]))
    again = pickle.loads(pickle.dumps(source)).read(torch.tensor([0]))
    assert torch.equal(first, again)
    assert torch.equal(first[0], torch.from_numpy(decode(tmp_path / "a.png", source.how)[0]))
    with pytest.raises(UnreadableImageError, match=r"x/b\.png"):
        source.read(torch.tensor([1]))


@pytest.mark.parametrize(
    "wrong",
    [{"size": (0, 4)}, {"channels": 2}, {"middle": 0.0}, {"middle": 1.5}, {"fit": "squash"}],
)
def test_impossible_decodings_are_refused_by_name(wrong):
    with refused(next(iter(wrong))):
        Decoding(**({"size": (4, 4)} | wrong))
