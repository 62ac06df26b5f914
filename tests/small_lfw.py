"""Labelled Faces in the Wild in small: four folds of three people, two more in no pair."""

import numpy as np
from PIL import Image

FOLDS, EACH, PICTURES, SIDE = 4, 3, 4, 20
LONERS = ("Zoe_Alone", "Zed_Alone")


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
