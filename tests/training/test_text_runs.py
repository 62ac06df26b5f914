"""Runs on texts: trained, resumed, shown; and networks and settings that do not fit them."""

import pytest
import torch

from support.errors import refused
from support.runs import SENTENCES, canonical, copy_of
from uncollapse._base.check import InputError
from uncollapse.data.listing import TextSource
from uncollapse.data.types import LabelledImages
from uncollapse.report import run_report
from uncollapse.training import Run, load_config, parse_config, train
from uncollapse.training.assemble import build_model, check_samples, load_data, trains_on_texts
from uncollapse.training.export import ExportError, export_onnx
from uncollapse.training.measurer import choose_samples
from uncollapse.training.measures import Samples


@pytest.mark.slow
def test_the_page_of_a_run_on_texts_shows_them_without_the_dataset(tmp_path):
    home = copy_of("texts", tmp_path)
    run = Run.open(home / "run")
    samples = run.samples("test")
    assert samples.pixels is None
    texts = samples.texts_by_place()
    assert sorted(texts) == samples.shown.tolist()
    every = {text for sentences in SENTENCES.values() for text in sentences}
    assert {text.rsplit(" ", 1)[0] for text in texts.values()} <= every
    page = run_report([run], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;owned=1&lt;/script&gt; [U+202E]{{ 7*7 }}" in page
    for words in ("<script>owned", "\u202e", "neither pictures nor texts"):
        assert words not in page
    assert Run.open(canonical("plain") / "run").samples("test").texts is None


@pytest.mark.parametrize("name", ["linear", "mlp", "conv2", "resnet18", "timm:resnet10t"])
def test_texts_need_a_network_for_texts(name):
    config = parse_config({"data": {"name": "texts"}, "model": {"backbone": name}})
    with refused("model.backbone"):
        build_model(config, (20,))


def test_images_need_a_network_for_images():
    config = parse_config({"data": {"name": "digits"}, "model": {"backbone": "sentence:any"}})
    with refused("model.backbone"):
        check_samples(config)
    assert not trains_on_texts(config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 32}, "texts is not decoded from image files"),
        ({"mean": [0.5]}, r"data\.mean"),
        ({"augment": ["flip"]}, r"data\.augment"),
    ],
)
def test_what_is_for_images_is_refused(tmp_path, change, message):
    config = load_config(canonical("texts") / "run.toml").with_changes({"data": change})
    with pytest.raises(InputError, match=message):
        train(config, tmp_path / "run")


def test_samples_of_long_texts_are_cut():
    texts = tuple(f"{n} " + "ä" * 3_000 for n in range(4))
    data = LabelledImages(TextSource(texts), torch.tensor([0, 0, 1, 1]))
    samples = choose_samples(data, torch.randn(4, 2))
    assert samples.texts.shape[1] == 2_000
    shown = samples.texts_by_place()
    assert all(texts[place].startswith(text) and text for place, text in shown.items())
    assert Samples(*(torch.zeros(1),) * 3).texts_by_place() is None


def test_a_network_for_texts_is_not_exported(tmp_path):
    model = torch.nn.Module()
    model.trunk = torch.nn.Module()
    model.trunk.reads_texts = True
    with pytest.raises(ExportError, match="this one reads texts"):
        export_onnx(model, (20,), tmp_path / "model.onnx")


def test_fine_labels_of_texts_can_be_trained_on(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,label,fine_label\na,x,u\nb,x,v\n")
    config = parse_config({"data": {"name": "texts", "root": str(path), "labels": "fine"}})
    assert load_data(config, "all").labels.tolist() == [0, 1]
