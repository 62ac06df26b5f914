"""What people get wrong when they call a function, and the sentence that helps them."""

import copy
import inspect

import numpy as np
import pytest
import torch
from torch import nn

import uncollapse as uc
from support.errors import refused
from support.odd_inputs import CLASSES, ROWS
from uncollapse.mining import as_pairs

Z, Y = torch.tensor(ROWS, dtype=torch.float32), CLASSES.tolist()
RANKED, COLUMN = uc.retrieval(Z, Y), CLASSES[:, None]
MODEL, TRIPLETS = nn.Linear(3, 2), uc.TripletLoss()


def trained():
    """A model and its optimizer."""
    model = nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def mean_square(z, labels):
    return z.square().mean()


def per_class(size):
    return uc.MarginLoss(beta_per="class", size=size)


def per_sample(ids):
    return uc.MarginLoss(beta_per="sample", size=12)(Z, Y, sample_ids=ids)


def proxies(classes, dim):
    generator = torch.Generator().manual_seed(0)
    return uc.ProxyNCALoss(num_classes=classes, dim=dim, generator=generator)


# The call, the argument that its error is about, and a word that helps.
MISTAKES = {
    "embeddings for values": (lambda: uc.confidence(ROWS, Y), "values", "uc.confidence(uc.ret"),
    "labels for a metric": (lambda: uc.confidence(ROWS[:, 0], CLASSES), "metric", "groups=labels"),
    "no metric": (lambda: uc.confidence(RANKED), "metric", "recall@1"),
    "metric misspelt": (lambda: uc.confidence(RANKED, "recal@1"), "metric", "did you mean 'reca"),
    "labels for clusters": (lambda: uc.metrics.kmeans(Z, CLASSES), "clusters", "shape (12,)"),
    "no labels": (lambda: uc.TripletLoss()(Z), "labels", "one for each row"),
    "one-hot labels": (lambda: TRIPLETS(Z, torch.eye(3)[CLASSES]), "labels", "labels.argm"),
    "a column of labels": (lambda: uc.retrieval(Z, COLUMN), "query_labels", "labels.flatten()"),
    "swapped in a loss": (lambda: uc.SupConLoss()(CLASSES, Z), "embeddings", "labels? the embed"),
    "1-D points": (lambda: uc.diameter(np.array([0.5, 1.5])), "x", "x[:, None]"),
    "3-D features": (lambda: uc.measure(torch.rand(4, 3, 2)), "embeddings", "x.flatten(1)"),
    "logits": (lambda: proxies(10, 4)(torch.eye(10), [0] * 10), "embeddings", "logits, one per"),
    "too many names": (lambda: per_class(2)(Z, [*"abc"] * 4), "labels", "at most 2 classes"),
    "names for samples": (lambda: per_sample(["a"] * 12), "sample_ids", "numbers"),
    "names and numbers": (lambda: uc.retrieval(Z, ["a", 1, 2] * 4), "query_labels", "1 in row 1"),
    "masked entries": (lambda: uc.diameter(np.ma.masked_equal(ROWS, 7)), "x", "masked entries"),
    "the class of a loss": (lambda: uc.CollapseMonitor(uc.TripletLoss), "loss_fn", "not its class"),
    "a vector of losses": (lambda: uc.CollapseMonitor().update(Z, Y, Z[0]), "loss", "mean()"),
    "a rate for an optimizer": (lambda: uc.Guard(MODEL, 0.1, TRIPLETS), "optimizer", "second"),
    "no loss": (lambda: uc.Guard(*trained(), None), "loss_fn", "a loss"),
    "embeddings before the loss": (lambda: uc.drift(Z, Y, uc.TripletLoss()), "loss_fn", "swapped"),
    "a loss that is a float": (lambda: uc.drift(lambda z, y: 3.0, Z, Y), "loss_fn", "one number"),
    "a loss per row": (lambda: uc.drift(lambda z, y: z.sum(1), Z, Y), "loss_fn", "a mean"),
    "drift without labels": (lambda: uc.drift(uc.TripletLoss(), Z), "labels", "one label"),
    "a sampler of rows": (lambda: uc.check_batches(range(4), [0, 1]), "sampler", "lists of row"),
    "one k": (lambda: uc.reid(Z, [1] * 12, Y, Z, [1] * 12, Y, ks=1), "ks", "a list"),
    "a pair for data": (lambda: uc.forecast(MODEL, (Z, Y), [2], [2]), "data", "a dataset with"),
    "a plain loss": (lambda: uc.forecast(MODEL, None, loss_fn=mean_square), "loss_fn", "a Trip"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_likely_mistake_gets_a_sentence_that_helps(name):
    call, argument, words = MISTAKES[name]
    with refused(argument) as error:
        call()
    assert words in str(error.value)
    assert len(str(error.value)) < 400


# Right arguments of what takes a truth value, a seed, a generator or thresholds.
SGD = torch.optim.SGD(MODEL.parameters(), 0.1)
LOSS_KINDS = [kind for kind in vars(uc.losses).values() if inspect.isclass(kind)]
LOSS_KINDS = [kind for kind in LOSS_KINDS if issubclass(kind, uc.Loss) and "Loss" in kind.__name__]
CALLS = {
    uc.measure: {"embeddings": Z, "labels": Y},
    uc.diagnose: {"embeddings": Z, "labels": Y},
    uc.retrieval: {"queries": Z, "query_labels": Y},
    uc.clustering: {"x": Z, "labels": Y},
    uc.verification: {"embeddings": Z, "labels": Y},
    uc.suspect_labels: {"embeddings": Z, "labels": Y},
    uc.drift: {"loss_fn": TRIPLETS, "embeddings": Z, "labels": Y},
    uc.mode_drift: {"loss_fn": TRIPLETS, "embeddings": Z, "labels": Y},
    uc.pairwise_distances: {"x": Z},
    uc.confidence: {"values": Z[:, 0]},
    uc.metrics.kmeans: {"x": Z, "clusters": 2},
    uc.metrics.rerank: {"queries": Z, "gallery": Z},
    uc.metrics.modes_per_class: {"x": Z.repeat(3, 1), "labels": Y * 3},
    uc.Guard: {"model": MODEL, "optimizer": SGD, "loss_fn": TRIPLETS},
    uc.watch: {"model": MODEL, "criterion": TRIPLETS, "optimizer": SGD},
    uc.CollapseMonitor: {},
    uc.health.judge: {"health": uc.measure(Z, Y)},
    uc.Miner: {},
    uc.backbones.build: {"name": "mlp", "dim": 2, "shape": (3,)},
    as_pairs: {"tuples": uc.Miner("easy", "hard")(Z, Y)},
    **{kind: {"num_classes": 3, "dim": 3, "loss": TRIPLETS} for kind in LOSS_KINDS},
}
WRONG = {"seed": (-1, "0"), "generator": (5,), "thresholds": ({}, {"cone_median": 1})}
WRONG |= {"shape": ("x", 5)}
CHECKED = [
    pytest.param(function, name, wrong, id=f"{function.__name__}-{name}")
    for function in CALLS
    if not inspect.isabstract(function)
    for name, argument in inspect.signature(function).parameters.items()
    if (wrong := ("no", 5) if isinstance(argument.default, bool) else WRONG.get(name))
]


@pytest.mark.parametrize(("function", "name", "wrong"), CHECKED)
def test_a_text_is_no_truth_value_and_a_number_no_generator(function, name, wrong):
    known = inspect.signature(function).parameters
    right = {key: value for key, value in CALLS[function].items() if key in known}
    function(**right)
    for value in wrong:
        with refused(name):
            function(**{**right, name: value})


def test_one_row_is_refused_as_it_cannot_be_judged():
    for judged in (uc.measure, uc.diagnose):
        with refused("embeddings"):
            judged(Z[:1])


def test_a_choice_is_checked_when_it_is_set():
    miner = uc.Miner("hard", "hard")
    for wrong in ("semi-hard", ["semihard"]):
        with refused("negatives"):
            miner.negatives = wrong
    assert miner.negatives == "hard"
    loss = uc.TripletLoss(miner=miner)
    with refused("reduction"):
        loss.reduction = "non-zero"
    with refused("margin"):
        uc.TripletLoss(margin=torch.zeros(999, 9))


@pytest.mark.parametrize("labels", [["cat", "dog", "cat", "dog"], np.array(["b", "a", "b", "a"])])
def test_names_keep_their_row_of_a_parameter(labels):
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    named, numbered = proxies(3, 3), proxies(3, 3)
    ids = [sorted(set(labels)).index(name) for name in labels]
    assert named(z, labels).item() == numbered(z, ids).item()
    # A later batch with other names: those seen keep their rows, the fresh one gets the next.
    later = ["aardvark", labels[0], labels[0], "aardvark"]
    assert named(z, later).item() == numbered(z, [2, ids[0], ids[0], 2]).item()


def test_a_restored_loss_finds_the_rows_of_its_names():
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    loss, again = per_class(3), per_class(3)
    loss(z, ["z", "y", "z", "y"])
    with torch.no_grad():
        loss.beta.copy_(torch.tensor([0.5, 1.0, 1.5]))
    again.load_state_dict(copy.deepcopy(loss.state_dict()))
    assert again(z, ["a", "z", "a", "z"]).item() == loss(z, ["a", "z", "a", "z"]).item()


def test_names_of_two_lists_are_numbered_together():
    pairs = as_pairs(None, ["b", "b"], ["a", "b"])
    assert (pairs.positive.tolist(), pairs.negative.tolist()) == ([1, 1], [0, 0])


@pytest.mark.parametrize("rows", [1, 2])
def test_a_monitor_takes_batches_of_one_row_and_sees_them_shrink(rows):
    monitor = uc.CollapseMonitor(patience=2)
    g = torch.Generator().manual_seed(0)
    seen = [monitor.update(torch.randn(rows, 4, generator=g), [i] * rows) for i in range(40)]
    assert {health.verdict for health in seen} <= {"healthy", "unknown"}
    assert seen[-1].diameter > 1.0
    for i in range(40):
        monitor.update(1e-6 * torch.randn(rows, 4, generator=g), [i % 4] * rows)
    assert monitor.verdict == "network-collapse"


def test_a_guard_takes_a_plain_function_and_rescues_by_the_learning_rate():
    model, optimizer = trained()
    guard = uc.Guard(model, optimizer, mean_square)
    z = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    for step in range(30):
        guard.after_step(z * 0.5**step, torch.arange(32) % 4, 1.0, step)
    # Its rows are not what the network returned: R@1 cannot be compared, and only a point is sure.
    assert [event.kind for event in guard.events][:2] == ["warning", "rescue"]
    assert guard.lr_factor < 1.0
    state = copy.deepcopy(guard.state_dict())
    uc.Guard(model, optimizer, mean_square).load_state_dict(state)


def test_gradients_flow_through_odd_rows():
    leaf = torch.tensor(ROWS, dtype=torch.float16).T.contiguous().requires_grad_()
    uc.TripletLoss(margin=9.0)(leaf.T, np.array(Y, ">i8")).backward()
    assert leaf.grad.dtype == torch.float16
    plain = torch.tensor(ROWS, requires_grad=True)
    uc.TripletLoss(margin=9.0)(plain, Y).backward()
    np.testing.assert_allclose(leaf.grad.T, plain.grad, atol=2e-3)
