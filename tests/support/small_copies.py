"""Small copies of datasets in their official layouts, to list, load and train on."""

import gzip
import struct
from pathlib import Path

import numpy as np
import scipy.io
from PIL import Image

# Labelled Faces in the Wild: four folds of three people, two more in no pair.
FOLDS, EACH, PICTURES, SIDE = 4, 3, 4, 20
LONERS = ("Zoe_Alone", "Zed_Alone")


def paint(path, mode="RGB", size=(12, 10), seed=0):
    """Write a small image of noise, of any mode; `size` is width and height."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    bands = {"LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}.get(mode, 1)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size[::-1], bands), dtype=np.uint8)
    if mode in ("1", "P"):
        image = Image.fromarray(pixels[:, :, 0]).convert(mode)
    else:
        image = Image.frombytes(mode, size, pixels.tobytes())
    image.save(path)
    return path


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def write_market(base, train=(), query=(), gallery=()):
    """Market-1501: each split is a list of (person, camera)."""
    folders = {"bounding_box_train": train, "query": query, "bounding_box_test": gallery}
    for folder, shots in folders.items():
        for place, (person, camera) in enumerate(shots):
            number = "-1" if person < 0 else f"{person:04d}"
            name = f"{number}_c{camera}s1_{place:06d}_00.jpg"
            paint(base / folder / name, size=(32, 64), seed=place)
    return base


def write_birds(base, classes):
    """CUB-200-2011: an image for each class number given, the second of them grey."""
    images, labels = [], []
    for key, number in enumerate(classes, 1):
        name = f"{number:03d}.Bird/Bird_{key:04d}.jpg"
        paint(base / "images" / name, "L" if key == 2 else "RGB", size=(40, 30), seed=key)
        images.append(f"{key} {name}")
        labels.append(f"{key} {number}")
    write_lines(base / "images.txt", images)
    write_lines(base / "image_class_labels.txt", labels)
    write_lines(base / "classes.txt", [f"{n} {n:03d}.Bird" for n in range(1, 201)])
    return base


def annotations(**columns):
    """A MATLAB struct array as the devkit of Stanford Cars stores it."""
    table = np.zeros((1, len(next(iter(columns.values())))), [(name, object) for name in columns])
    for name, values in columns.items():
        table[name][0] = values
    return table


def car_names():
    return np.array([f"Car {number}" for number in range(1, 197)], dtype=object)


def write_cars(base, classes):
    """Stanford Cars in one folder: an image for each class number given."""
    names = [f"car_ims/{place:06d}.jpg" for place in range(len(classes))]
    for place, name in enumerate(names):
        paint(base / name, seed=place)
    zeros = [0] * len(classes)
    table = annotations(relative_im_path=names, bbox_x1=zeros, test=zeros, **{"class": classes})
    mat = {"annotations": table, "class_names": car_names()}
    scipy.io.savemat(base / "cars_annos.mat", mat)
    return base


def write_products(base, train, test):
    """Stanford Online Products: an image for each class number given."""
    for split, classes in (("train", train), ("test", test)):
        lines = ["image_id class_id super_class_id path"]
        for place, number in enumerate(classes):
            path = f"chair_final/{split}_{place}.JPG"
            paint(base / path, seed=place)
            lines.append(f"{place + 1} {number} 1 {path}")
        write_lines(base / f"Ebay_{split}.txt", lines)
    return base


def write_letters(base, background, evaluation):
    """Omniglot: how many letters each alphabet has, of each letter two drawings."""
    for folder, alphabets in (("background", background), ("evaluation", evaluation)):
        for alphabet, count in alphabets.items():
            for letter in range(1, count + 1):
                for drawing in (1, 2):
                    name = f"{alphabet}/character{letter:02d}/{drawing:02d}.png"
                    path = base / f"images_{folder}" / name
                    paint(path, "1", size=(20, 20), seed=letter * 7 + drawing)
    return base


def idx(array):
    """The bytes of an idx file."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_mnist(folder, zipped=False, stop="-", count=20):
    """As many training as test images, digit after digit; the first pixel holds the digit."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = np.arange(count) % 10
    images = np.random.default_rng(0).integers(0, 256, (count, 28, 28))
    images[:, 0, 0] = digits
    for part in ("train", "t10k"):
        for kind, array in ((f"images{stop}idx3", images), (f"labels{stop}idx1", digits)):
            path = folder / (f"{part}-{kind}-ubyte" + ".gz" * zipped)
            path.write_bytes(gzip.compress(idx(array)) if zipped else idx(array))
    return folder


def person(fold, place):
    return f"Fold_{fold}_{'abc'[place]}"


def paint_lfw(base, images="lfw-deepfunneled"):
    """Write the images and pairs.txt below `base`; a face is one grey in a frame of noise."""
    rng = np.random.default_rng(0)
    people = [person(f, p) for f in range(1, FOLDS + 1) for p in range(EACH)]
    for place, name in enumerate([*people, *LONERS]):
        folder = base / images / name
        folder.mkdir(parents=True)
        for number in range(1, 2 if name in LONERS else PICTURES + 1):
            pixels = rng.integers(0, 256, (SIDE, SIDE, 3))
            pixels[4:16, 4:16] = 60 + 10 * place + rng.integers(0, 25)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{name}_{number:04d}.jpg")
    lines = [f"{FOLDS}\t{EACH}"]
    for fold in range(1, FOLDS + 1):
        names = [person(fold, p) for p in range(EACH)]
        lines += [f"{name}\t{p + 1}\t{p + 2}" for p, name in enumerate(names)]
        lines += [f"{name}\t2\t{names[(p + 1) % EACH]}\t1" for p, name in enumerate(names)]
    (base / "pairs.txt").write_text("\n".join(lines) + "\n")
    return base


def paired_people(folds):
    return {person(f, p) for f in folds for p in range(EACH)}
