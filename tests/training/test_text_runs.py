import json

import pytest
import torch

from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.data.listing import TextSource
from uncollapse.data.types import LabelledImages
from uncollapse.report import run_report
from uncollapse.training import Run, parse_config, train
from uncollapse.training.assemble import build_model, check_samples, load_data, trains_on_texts
from uncollapse.training.export import ExportError, export_onnx
from uncollapse.training.measurer import choose_samples
from uncollapse.training.measures import Samples

HOSTILE = "<script>owned=1</script> \u202e{{ 7*7 }}"
WORDS = {
    "cards": [f"{HOSTILE} {word}" for word in ("freeze my card", "block it", "a new card", "lost")],
    "weather": ["will it rain", "is it cold today", "snow tomorrow?", "how warm is it"],
}


@pytest.fixture
def config(tmp_path):
    rows = [
        {"text": f"{text} {n}", "label": label, "split": split}
        for label, texts in WORDS.items()
        for text in texts
        for n, split in enumerate(("train", "train", "test", "test"))
    ]
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return parse_config(
        {
            "data": {"name": "texts", "root": str(path)},
            "model": {"backbone": "text_models:letters", "dim": 4},
            "batch": {"p": 2, "k": 3},
            "train": {"steps": 4, "evaluate_every": 4},
        }
    )


def test_a_run_on_texts_trains_and_its_page_shows_them_without_the_dataset(tmp_path, config):
    run = train(config, tmp_path / "run")
    (tmp_path / "requests.jsonl").unlink()
    samples = run.samples("test")
    assert samples.pixels is None
    texts = samples.texts_by_place()
    assert sorted(texts) == samples.shown.tolist()
    assert {text.rsplit(" ", 1)[0] for text in texts.values()} <= {
        text for some in WORDS.values() for text in some
    }
    page = run_report([run], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;owned=1&lt;/script&gt; [U+202E]{{ 7*7 }}" in page
    assert "<script>owned" not in page
    assert "\u202e" not in page
    assert "neither pictures nor texts" not in page


def test_a_run_on_texts_resumes_as_if_never_interrupted(tmp_path, config):
    whole = train(config, tmp_path / "whole")
    half = config.with_changes({"train": {"steps": 2}})
    train(half, tmp_path / "parts")
    again = train(config, tmp_path / "parts", resume=True)
    runs = (Run.open(run.path, trust=True) for run in (whole, again))
    one, two = (run.load_model().state_dict() for run in runs)
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("name", ["linear", "mlp", "conv2", "resnet18", "timm:resnet10t"])
def test_texts_need_a_network_for_texts(config, name):
    other = config.with_changes({"model": {"backbone": name}})
    with refused("model.backbone"):
        build_model(other, (20,))


def test_images_need_a_network_for_images():
    config = parse_config({"data": {"name": "digits"}, "model": {"backbone": "sentence:any"}})
    with pytest.raises(InputError, match=r"samples of 'digits', which are no texts"):
        check_samples(config)
    assert not trains_on_texts(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 32}, "texts is not decoded from image files"),
        ({"mean": [0.5]}, r"data\.mean: expected no such key: these samples are not images"),
        ({"augment": ["flip"]}, r"data\.augment: expected 'none': only images are augmented"),
    ],
)
def test_what_is_for_images_is_refused(tmp_path, config, change, message):
    with pytest.raises(InputError, match=message):
        train(config.with_changes({"data": change}), tmp_path / "run")


def test_samples_of_long_texts_are_cut():
    texts = tuple(f"{n} " + "ä" * 3_000 for n in range(4))
    data = LabelledImages(TextSource(texts), torch.tensor([0, 0, 1, 1]))
    found = choose_samples(data, torch.randn(4, 2))
    assert found.texts.shape[1] == 2_000
    shown = found.texts_by_place()
    assert all(texts[place].startswith(text) and text for place, text in shown.items())


def test_samples_without_texts_have_none():
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


def test_a_run_without_samples_of_texts_is_read_as_before(tmp_path):
    config = parse_config(
        {"data": {"name": "digits"}, "model": {"backbone": "linear", "dim": 2},
         "batch": {"p": 2, "k": 2}, "train": {"steps": 1}}
    )  # fmt: skip
    run = train(config, tmp_path / "run")
    assert Run.open(run.path).samples("test").texts is None
