"""Runs where sentence-transformers is installed: `make test-callbacks`."""

import json
import shutil
import sys

import pytest
import torch

pytest.importorskip("sentence_transformers")

from support.errors import refused
from support.text_models import make_sentence_model
from uncollapse._base.arrays import rows_of_texts
from uncollapse._base.extras import MissingExtraError
from uncollapse.backbones import build

TEXTS = ["freeze my card", "will it rain today", "play"]
ROWS = rows_of_texts(TEXTS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_sentence_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def model(folder):
    return build(f"sentence:{folder}", dim=4, shape=(20,))


def test_vectors_are_those_of_the_package_itself_whatever_the_padding(folder, model):
    from sentence_transformers import SentenceTransformer

    truth = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, convert_to_tensor=True)
    wide = torch.cat([ROWS, torch.zeros(3, 30, dtype=torch.int16)], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model.eval().trunk(ROWS), truth)
        assert tuple(model(ROWS).shape) == (3, 4)
        assert torch.equal(model(wide), model(ROWS))
    with refused("samples"):
        model(torch.rand(2, 3, 8, 8))


def test_a_text_beyond_the_longest_input_is_cut(model):
    long = rows_of_texts(["rain " * 500, "rain " * 20])
    vectors = model.eval().trunk(long)
    torch.testing.assert_close(vectors[0], vectors[1])


def test_the_whole_transformer_is_trained(model):
    model.train()(ROWS).pow(2).sum().backward()
    assert all(
        parameter.grad is not None and float(parameter.grad.abs().sum()) > 0
        for name, parameter in model.named_parameters()
        if "encoder" in name and "key.bias" not in name  # softmax does not see the bias of keys
    )


def test_the_last_step_of_the_model_is_kept(tmp_path):
    folder = make_sentence_model(tmp_path / "unit", last_unit=True)
    vectors = build(f"sentence:{folder}", dim=4, shape=(20,)).eval().trunk(ROWS)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))


def test_weights_in_16_bits_are_trained_in_32(tmp_path, folder):
    from safetensors.torch import load_file, save_file

    half = tmp_path / "half"
    shutil.copytree(folder, half)
    weights = load_file(half / "model.safetensors")
    save_file(
        {k: v.half() for k, v in weights.items()}, half / "model.safetensors", {"format": "pt"}
    )
    config = json.loads((half / "config.json").read_text())
    (half / "config.json").write_text(json.dumps(config | {"dtype": "float16"}))
    model = build(f"sentence:{half}", dim=4, shape=(20,))
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_a_package_that_carries_a_model_is_found_and_not_imported(tmp_path, folder, monkeypatch):
    package = tmp_path / "packaged_sentences"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    shutil.copytree(folder, package / "model")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("packaged_sentences", "packaged-sentences"):
        assert build(f"sentence:{name}", dim=4, shape=(20,)).trunk.features == 16
    assert "packaged_sentences" not in sys.modules


def test_a_model_with_code_of_its_own_is_refused(tmp_path, folder):
    hostile = tmp_path / "hostile"
    shutil.copytree(folder, hostile)
    parts = json.loads((hostile / "modules.json").read_text())
    parts[0]["type"] = "modeling_own.Transformer"
    (hostile / "modules.json").write_text(json.dumps(parts))
    (hostile / "modeling_own.py").write_text("raise RuntimeError('imported')")
    with refused("name") as error:
        build(f"sentence:{hostile}", shape=(20,))
    assert "modeling_own.Transformer" in str(error.value)
    (hostile / "modules.json").write_text("{")
    for folder in (hostile, tmp_path):  # a damaged model, and none
        with refused("name"):
            build(f"sentence:{folder}", shape=(20,))


def test_the_draw_of_the_head_is_seeded_and_pretrained_is_what_there_is(folder):
    one, two = (build(f"sentence:{folder}", shape=(20,), weights=w) for w in (None, "pretrained"))
    assert torch.equal(one.head.linear.weight, two.head.linear.weight)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"uncollapse\[text\]"):
        build("sentence:any", shape=(20,))
