import re

import pytest

from uncollapse._base.check import InputError
from uncollapse.training.config import WrongKeysError, parse_config

HUGE = 10**400


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"minning": {}}, r"minning: expected one of seed, .*got a key.*did you mean 'mining'"),
        ({"batch": {"kk": 2}}, "batch.kk: expected one of sampler, p, k, size, got a key that"),
        ({"batch": {"p": 0}}, "batch.p: expected a number of at least 1, got 0$"),
        ({"batch": {"p": "many"}}, "batch.p: expected a whole number, got 'many'$"),
        ({"batch": {"p": 2.5}}, "batch.p: expected a whole number, got 2.5$"),
        ({"batch": {"p": True}}, "batch.p: expected a whole number, got 'true'$"),
        ({"loss": {"margin": False}}, "loss.margin: expected a number, got 'false'$"),
        ({"mining": {"pool": True}}, "mining.pool: expected a whole number, got 'true'$"),
        ({"data": {"name": True}}, "data.name: expected text, got True$"),
        ({"data": {"eval_splits": "test"}}, "data.eval_splits: expected a list, got 'test'$"),
        ({"data": {"channels": 2}}, "data.channels: expected 1 or 3, got 2$"),
        ({"model": {"normalize": 3}}, "model.normalize: expected true or false, got 3$"),
        ({"mining": {"negatives": "soft"}}, "mining.negatives: expected 'hard', .* got 'soft'"),
        ({"mining": {"positives": "esy"}}, r"got 'esy' \(did you mean 'easy'\?\)$"),
        ({"mining": {"keep": "semi-hard"}}, "mining.keep: expected 'all', .*mean 'semihard'"),
        ({"optimizer": {"lr": -1}}, "optimizer.lr: expected a number above 0, got -1$"),
        ({"optimizer": {"lr": float("inf")}}, "optimizer.lr: expected a finite number, got inf$"),
        ({"optimizer": {"momentum": 1}}, "optimizer.momentum: expected a number below 1, got 1$"),
        ({"loss": {"trim": 1.5}}, "loss.trim: expected a number of at most 1, got 1.5$"),
        ({"evaluate": {"ks": []}}, "evaluate.ks: expected at least 1 of them, got"),
        ({"evaluate": {"ks": [1, "a"]}}, "evaluate.ks.1: expected a whole number, got 'a'$"),
        ({"seed": 2**70}, "seed: expected a number below 9223372036854775808, got"),
        ({"data": 3}, "data: expected a section of keys, got 3$"),
        ({"train": {"lr": 1}}, r"train.lr: .*does not exist \(did you mean 'optimizer.lr'\?\)$"),
        ({"margin": 1}, r"margin: .*\(did you mean 'mining.margin' or 'loss.margin'\?\)$"),
        ({"loss": {"margin": HUGE}}, r"loss.margin: expected a number, got 10{79}\.\.\.$"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_key_or_value_is_named_with_what_is_allowed(values, message):
    with pytest.raises(InputError, match=f"^{message}" if ":" in message else message) as caught:
        parse_config(values)
    assert not re.search(r"pydantic|https?:|\bInput should\b|valid ", str(caught.value))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (3, "loss: expected a section of keys, got 3$"),
        ({"name": "tripet"}, r"loss.name: expected one of 'triplet', .*mean 'triplet'\?\)$"),
        ({"name": "xyz"}, "loss.name: expected one of 'triplet', .*'sup-con', .*, got 'xyz'$"),
        (
            {"temperature": 1},
            "loss.temperature: expected a key of triplet: .*swap, got a key of sup-con, nt-xent",
        ),
        (
            {"name": "n-pair", "beta": 1},
            "loss.beta: expected a key of n-pair: .*got a key of margin, multi-similarity$",
        ),
        ({"name": "sup-con", "margin": 1}, r".*contrastive,.* \(did you mean 'mining.margin'\?\)$"),
        ({"margn": 1}, r"loss.margn: expected a key of triplet: .* \(did you mean 'margin'\?\)$"),
        (
            {"name": "contrastive", "reduction": "max"},
            "loss.reduction: expected 'mean', 'nonzero' or 'pairs' for contrastive, got 'max'$",
        ),
        (
            {"reduction": "pairs"},
            "loss.reduction: expected 'mean', 'nonzero' or 'max' for triplet, got 'pairs'$",
        ),
        (
            {"name": "margin", "reduction": "max"},
            "loss.reduction: expected 'nonzero' or 'mean' for margin, got 'max'$",
        ),
    ],
    ids=str,
)
def test_a_key_or_word_of_another_loss_is_refused_with_the_loss_named(loss, message):
    with pytest.raises(InputError, match=f"^{message}"):
        parse_config({"loss": loss})


def test_all_wrong_keys_are_named_at_once():
    values = {
        "minning": {},
        "batch": {"kk": 2, "p": 0},
        "loss": {"name": "contrastive", "reduction": "max", "temperature": 1},
        "train": {"precision": "int8"},
    }
    with pytest.raises(WrongKeysError, match=r"^6 keys are wrong:\n- ") as caught:
        parse_config(values)
    assert len(caught.value.errors) == 6
    named = {str(error).split(":")[0] for error in caught.value.errors}
    assert named == {
        "minning",
        "batch.kk",
        "batch.p",
        "loss.reduction",
        "loss.temperature",
        "train.precision",
    }
    assert all(str(error) in str(caught.value) for error in caught.value.errors)
