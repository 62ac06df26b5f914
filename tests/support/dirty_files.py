"""Text-like embeddings of length 1, as they are and with what goes wrong in real files."""

import numpy as np

ROWS, CLASSES, DIM = 2000, 40, 96


def clean(seed=0, rows=ROWS, classes=CLASSES, dim=DIM, noise=1.9):
    """Rows and labels: classes about random directions, so wide that R@1 is about 0.8."""
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % classes
    centres = rng.normal(size=(classes, dim)) / np.sqrt(dim)
    z = centres[labels] + noise * rng.normal(size=(rows, dim)) / np.sqrt(dim)
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32), labels


def spoilt(kind, z, seed=1):
    """The same rows with one kind of dirt."""
    rng = np.random.default_rng(seed)
    z, some = z.copy(), rng.permutation(len(z))
    if kind == "zero":
        z[some[:10]] = 0
    elif kind == "nan":
        z[some[0]] = np.nan
    elif kind == "many nan":
        z[some[: len(z) // 10], 0] = np.inf
    elif kind == "copies":
        z[some[: 3 * len(z) // 10]] = z[some[0]]
    elif kind == "noise":
        z += 0.8 * rng.normal(size=z.shape).astype(np.float32) / np.sqrt(z.shape[1])
    elif kind == "dead dimensions":
        z[:, z.shape[1] // 2 :] = 0
    elif kind == "hub":  # near the mean of rows that are not of length 1
        z[some[0]] = z.mean(axis=0)
    return z


KINDS = ("zero", "nan", "many nan", "copies", "noise", "dead dimensions", "hub")
