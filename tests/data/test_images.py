import io
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from uncollapse._base.check import InputError
from uncollapse.data.images import Decoding, FileSource, UnreadableImageError, decode
from uncollapse.data.listing import ImageRef


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def test_colour_pixels_of_the_right_size_are_kept_as_they_are():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    array, was = decode(png(Image.fromarray(pixels)), Decoding((4, 5)))
    assert was is None
    assert np.array_equal(array, np.moveaxis(pixels, 2, 0))


@pytest.mark.parametrize(
    ("mode", "channels", "was"),
    [
        ("RGB", 3, None),
        ("RGB", 1, "colour"),
        ("L", 1, None),
        ("L", 3, "grey"),
        ("1", 1, None),
        ("1", 3, "grey"),
        ("P", 3, "palette"),
        ("RGBA", 3, "alpha"),
        ("LA", 3, "alpha"),
        ("LA", 1, "alpha"),
    ],
)
def test_every_mode_becomes_the_channels_asked_for_and_says_what_it_was(
    tmp_path, paint, mode, channels, was
):
    path = paint(tmp_path / "a.png", mode)
    array, found = decode(path, Decoding((6, 7), channels))
    assert (array.shape, array.dtype, found) == ((channels, 6, 7), np.uint8, was)


def test_cmyk_jpegs_become_rgb(tmp_path):
    path = tmp_path / "a.jpg"
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(path, quality=100)  # red ink
    array, was = decode(path, Decoding((16, 16)))
    assert was == "CMYK"
    red, green, blue = array.mean(axis=(1, 2))
    assert red > 250
    assert max(green, blue) < 5


def test_transparent_pixels_are_laid_over_white():
    image = Image.new("RGBA", (2, 1), (10, 20, 30, 255))
    image.putpixel((1, 0), (10, 20, 30, 0))
    array, _ = decode(png(image), Decoding((1, 2)))
    assert array[:, 0, 0].tolist() == [10, 20, 30]
    assert array[:, 0, 1].tolist() == [255, 255, 255]


def test_a_transparent_palette_colour_is_alpha_too():
    image = Image.new("P", (1, 1), 0)
    image.putpalette([9, 9, 9] * 256)
    file = io.BytesIO()
    image.save(file, "PNG", transparency=0)
    array, was = decode(file.getvalue(), Decoding((1, 1)))
    assert was == "alpha"
    assert array.flatten().tolist() == [255, 255, 255]


def test_sixteen_bit_grey_is_scaled_not_clipped():
    image = Image.fromarray(np.array([[0, 32768, 65535]], dtype=np.uint16))
    array, was = decode(png(image), Decoding((1, 3), channels=1))
    assert was is None
    assert array.flatten().tolist() == [0, 128, 255]


def test_invert_makes_ink_bright():
    array, _ = decode(png(Image.new("L", (2, 2), 255)), Decoding((2, 2), 1, invert=True))
    assert array.max() == 0


def test_cover_cuts_the_middle_and_keeps_the_aspect():
    pixels = np.zeros((2, 6), np.uint8)
    pixels[:, 2:4] = 200  # the middle third
    array, _ = decode(png(Image.fromarray(pixels)), Decoding((2, 2), 1, fit="cover"))
    assert array.min() == 200


def test_the_middle_is_kept_before_the_picture_is_fitted():
    pixels = np.arange(200, dtype=np.uint8).reshape(10, 20)
    how = Decoding((6, 12), 1, middle=0.6)
    assert np.array_equal(decode(png(Image.fromarray(pixels)), how)[0][0], pixels[2:8, 4:16])
    tiny, _ = decode(png(Image.fromarray(pixels[:1, :1])), Decoding((2, 2), 1, middle=0.1))
    assert np.array_equal(tiny[0], np.zeros((2, 2)))


def test_contain_keeps_everything_and_fills_with_black_also_when_inverted():
    pixels = np.full((2, 6), 55, np.uint8)
    for invert, value in ((False, 55), (True, 200)):
        array, _ = decode(png(Image.fromarray(pixels)), Decoding((6, 6), 1, "contain", invert))
        assert array[0, 2:4].min() == array[0, 2:4].max() == value
        assert array[0, :2].max() == array[0, 4:].max() == 0


@given(
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    size=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    fit=st.sampled_from(["stretch", "cover", "contain"]),
)
def test_any_image_comes_out_in_the_size_asked_for(width, height, size, fit):
    array, _ = decode(png(Image.new("RGB", (width, height), (9, 9, 9))), Decoding(size, 3, fit))
    assert array.shape == (3, *size)
    if fit != "contain":
        assert array.min() == array.max() == 9


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.bmp"])
def test_a_truncated_file_is_unreadable_by_name(tmp_path, paint, truncate, name):
    path = paint(tmp_path / "birds" / name, "P" if name == "a.gif" else "RGB", size=(64, 64))
    truncate(path)
    with pytest.raises(UnreadableImageError, match=rf"birds/{name} \("):
        FileSource([ImageRef(path)], Decoding((8, 8))).read(torch.tensor([0]))


@pytest.mark.parametrize("content", [b"", b"not an image", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_image_is_unreadable(content):
    with pytest.raises(UnreadableImageError):
        decode(content, Decoding((8, 8)))


def test_images_are_read_from_zips_also_after_pickling(tmp_path, paint):
    import pickle

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
    ("arguments", "message"),
    [
        ({"size": (0, 4)}, "size: expected a whole number"),
        ({"size": (4, 4), "channels": 2}, "channels: expected 1 or 3, got 2"),
        ({"size": (4, 4), "middle": 0.0}, "middle: expected a share above 0, at most 1, got 0.0"),
        ({"size": (4, 4), "middle": 1.5}, "middle: expected a share above 0, at most 1, got 1.5"),
        ({"size": (4, 4), "fit": "squash"}, "fit: expected one of 'cover', 'contain', 'stretch'"),
    ],
)
def test_impossible_decodings_are_refused_by_name(arguments, message):
    with pytest.raises(InputError, match=message):
        Decoding(**arguments)
