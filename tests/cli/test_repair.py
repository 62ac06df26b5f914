"""`uncollapse repair`: what it did is judged and said; the file and the transform are written."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from uncollapse.data.sources import open_source


@pytest.fixture
def rows(folder):
    """400 rows of 6 classes in a cone, with names and prices: z.npz; without them: bare.npy."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 6
    z = (rng.normal(size=(6, 12))[labels] + 0.5 * rng.normal(size=(400, 12)) + 9).astype(np.float32)
    names = np.array([f"n{i}" for i in range(400)])
    np.savez("z.npz", embeddings=z, labels=labels, names=names, price=np.arange(400) / 4)
    np.save("bare.npy", z.astype(np.float16))
    return z


@pytest.mark.parametrize("ending", ["npz", "safetensors", "parquet"])
def test_the_new_file_is_the_judged_transform_of_all_rows_with_every_column(rows, cli, ending):
    out = f"out.{ending}"
    said = cli("repair", "z.npz", "--whiten", "--out", out, "--transform", "t.safetensors").text
    assert f"wrote {out}: rows, labels, names, price" in said
    parts = load_file("t.safetensors")
    features = ["embeddings"] if ending == "parquet" else []
    source = open_source(out, features=features, ignore=["price"] if features else [])
    expected = (rows.astype(np.float64) - parts["mean"]) @ parts["matrix"]
    np.testing.assert_allclose(source.points, expected, atol=1e-4)
    half = np.sort(np.random.default_rng(0).permutation(400)[:200])
    np.testing.assert_allclose(parts["mean"], rows[half].mean(0), rtol=1e-5)
    assert source.labels.tolist() == (np.arange(400) % 6).tolist()
    assert source.names[7] == "n7"
    if not features:
        assert source.columns["price"].astype(float).tolist() == (np.arange(400) / 4).tolist()


def test_the_onnx_file_computes_the_same(rows, cli):
    onnxruntime = pytest.importorskip("onnxruntime")
    words = ["--transform", "t.onnx", "--transform", "t.safetensors"]
    cli("repair", "z.npz", "--remove-top", "2", *words)
    session = onnxruntime.InferenceSession("t.onnx", providers=["CPUExecutionProvider"])
    parts = load_file("t.safetensors")
    for batch in (rows, rows[:1]):
        (output,) = session.run(["repaired"], {"embeddings": batch})
        np.testing.assert_allclose(output, (batch - parts["mean"]) @ parts["matrix"], atol=1e-4)


def test_it_says_whether_it_helps(rows, cli):
    said = cli("repair", "z.npz", "--centre").text
    assert "fitted on a random half, 200 rows, judged on the other" in said
    assert "centring does not help here: R@1 by cosine" in said
    assert "centring helps rows kept in float16" in said
    rng = np.random.default_rng(1)
    drowned = rows + 50 * rng.normal(size=(400, 1))
    np.savez("drowned.npz", embeddings=drowned, labels=np.arange(400) % 6)
    said = cli("repair", "drowned.npz", "--remove-top", 1).text
    assert "removing the top axis helps here" in said
    said = cli("repair", "bare.npy", "--centre").text
    assert "without labels R@1 cannot be judged" in said
    assert "mean cosine" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["z.npz"], "choose one of --centre, --whiten and --remove-top"),
        (["z.npz", "--centre", "--whiten"], "choose one of"),
        (["z.npz", "--remove-top", "12"], "top: expected 1 to 11 of 12 axes"),
        (["few.npy", "--whiten"], "at least 26 rows"),
        (["tiny.npy", "--centre"], "at least 16 rows"),
        (["z.npz", "--centre", "--out", "z.csv"], "--out"),
        (["z.npz", "--centre", "--transform", "t.pt"], "--transform"),
        (["nowhere.npz", "--centre"], "nowhere.npz"),
    ],
)
def test_wrong_words_are_refused(rows, cli, words, message):
    np.save("few.npy", rows[:24])
    np.save("tiny.npy", rows[:15])
    assert message in cli("repair", *words, code=2).text
