"""Training loops as people write them: each a generator that first yields what it trains.

The first value is (model, criterion, optimizer, options of the watch); the rest is the loop itself.
"""

import copy
import pickle
import random
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

import uncollapse as uc
from uncollapse.losses import CrossBatchMemory, MarginLoss, TripletLoss
from uncollapse.mining import Miner

ROWS, CLASSES, IN, DIM = 48, 8, 8, 6
LABELS = torch.arange(CLASSES).repeat_interleave(ROWS // CLASSES)
CENTRES = torch.randn(64, IN, generator=torch.Generator().manual_seed(7))


def seed_all(seed=0):
    """The three streams that a loop draws from."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)


def noise(step, rows=ROWS):
    """Samples that do not show their labels: batch-hard collapses on them."""
    return torch.randn(rows, IN, generator=torch.Generator().manual_seed(step))


def samples(step, labels=LABELS):
    """Samples that show their labels: a run stays healthy."""
    return 1.5 * CENTRES[labels] + 0.5 * noise(step, len(labels))


def network(*middle):
    return nn.Sequential(nn.Linear(IN, 16), *middle, nn.ReLU(), nn.Linear(16, DIM))


def triplet(positives="hard", negatives="hard", **options):
    return TripletLoss(margin=0.2, miner=Miner(positives, negatives), **options)


def adam(*parts, lr=1e-2):
    learned = [p for part in parts for p in part.parameters() if p.requires_grad]
    return torch.optim.Adam(learned, lr=lr)


def fit(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# Loops of all kinds. Most train batch-hard on noise, so that `rescue` has something to do.


def plain(steps, start=0):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(start, steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)
        yield step


def changing_batch_sizes(steps):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        rows = 16 + 7 * (step % 6)
        fit(criterion(model(noise(step, rows)), torch.arange(rows) % 8), optimizer)


def last_batch_of_one_row(steps):
    from pytorch_metric_learning.losses import TripletMarginLoss

    model, criterion = network(), TripletMarginLoss()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        rows = 1 if step % 5 == 4 else 24
        fit(criterion(model(noise(step, rows)), torch.arange(rows) % 8), optimizer)


def one_row_only(steps):
    model, criterion = network(), nn.TripletMarginLoss()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        a, p, n = (model(noise(step, 3)[i : i + 1]) for i in range(3))
        fit(criterion(a, p, n), optimizer)


def empty_batch(steps):
    from pytorch_metric_learning.losses import ContrastiveLoss

    model, criterion = network(), ContrastiveLoss()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        rows = 0 if step % 10 == 9 else 24
        fit(criterion(model(noise(step, rows)), torch.arange(rows) % 8), optimizer)


def one_class_only(steps):
    from pytorch_metric_learning.losses import ContrastiveLoss

    model, criterion = network(), ContrastiveLoss()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)), torch.zeros(ROWS, dtype=torch.long)), optimizer)


def singleton_classes(steps):
    from pytorch_metric_learning.losses import ContrastiveLoss

    model, criterion = network(), ContrastiveLoss()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)), torch.arange(ROWS)), optimizer)


def singleton_classes_now_and_then(steps):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the loop's own: a batch without triplets
        for step in range(steps):
            labels = torch.arange(ROWS) if step % 7 == 3 else LABELS
            fit(criterion(model(noise(step)), labels), optimizer)


def string_labels(steps, kind=list, start=0):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    names = kind(f"class {label}" for label in LABELS.tolist())
    for step in range(start, steps):
        fit(criterion(model(noise(step)), names), optimizer)


def string_labels_of_a_loader(steps):
    """`default_collate` gives them as a tuple."""
    return string_labels(steps, tuple)


def numpy_labels(steps, start=0):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(start, steps):
        fit(criterion(model(noise(step)), LABELS.numpy().astype(np.int16)), optimizer)


def reused_buffers(steps, start=0):
    """Inputs and labels are refilled in place; `torch.from_numpy` shares them."""
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    x, y = np.empty((ROWS, IN), np.float32), np.empty(ROWS, np.int64)
    for step in range(start, steps):
        x[:], y[:] = noise(step).numpy(), LABELS.numpy()
        fit(criterion(model(torch.from_numpy(x)), torch.from_numpy(y)), optimizer)
        x[:], y[:] = 0.0, 0


def the_same_rows_at_every_step(steps, distinct=1):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step % distinct)), LABELS), optimizer)


def two_batches_in_turn(steps):
    return the_same_rows_at_every_step(steps, 2)


def frozen_parameters(steps):
    model, criterion = network(), triplet()
    model[0].requires_grad_(False)
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)


def unfrozen_later(steps):
    """`add_param_group` after a snapshot."""
    model, criterion = network(), triplet()
    model[0].requires_grad_(False)
    optimizer = adam(model)
    yield model, criterion, optimizer, {"snapshot_every": 5}
    for step in range(steps):
        if step == 8:
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 1e-3})
        fit(criterion(model(noise(step)), LABELS), optimizer)


def several_optimizers_and_groups(steps):
    model, criterion = network(), triplet()
    groups = [{"params": model[0].weight, "lr": 1e-2}, {"params": model[0].bias, "lr": 1e-3}]
    first, second = torch.optim.Adam(groups), torch.optim.SGD(model[2].parameters(), 0.1, 0.9)
    yield model, criterion, [first, second], {}
    for step in range(steps):
        loss = criterion(model(noise(step)), LABELS)
        first.zero_grad()
        second.zero_grad()
        loss.backward()
        first.step()
        second.step()


def an_optimizer_of_the_loss(steps):
    model = network()
    criterion = MarginLoss(learn_beta=True)
    optimizer, other = adam(model), torch.optim.SGD(criterion.parameters(), 0.1)
    yield model, criterion, [optimizer, other], {}
    for step in range(steps):
        loss = criterion(model(noise(step)), LABELS)
        other.zero_grad()
        fit(loss, optimizer)
        other.step()


def lbfgs(steps, data=noise):
    model, criterion = network(), triplet()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    yield model, criterion, optimizer, {}
    for step in range(steps):

        def closure(step=step):
            optimizer.zero_grad()
            loss = criterion(model(data(step)), LABELS)
            loss.backward()
            return loss

        optimizer.step(closure)


def scaled_and_autocast(steps):
    model, criterion = network(), triplet()
    optimizer, scaler = adam(model), torch.amp.GradScaler("cpu")
    yield model, criterion, optimizer, {}
    for step in range(steps):
        with torch.autocast("cpu", torch.bfloat16):
            loss = criterion(model(noise(step)), LABELS)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def accumulation(steps):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        loss = criterion(model(noise(step)), LABELS)
        loss /= 4  # in place, as many do
        loss.backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def ema_copies(steps):
    model, criterion = network(nn.BatchNorm1d(16)), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    average = copy.deepcopy(model)
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)
        for own, new in zip(average.parameters(), model.parameters(), strict=True):
            own.data.mul_(0.9).add_(new.data, alpha=0.1)
        average(noise(step))
        copy.deepcopy(model)(noise(step))


def swa(steps):
    from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

    model, criterion = network(nn.BatchNorm1d(16)), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    average, schedule = AveragedModel(model), SWALR(optimizer, swa_lr=5e-3)
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)
        average.update_parameters(model)
        schedule.step()
    update_bn([noise(step) for step in range(3)], average)


def data_parallel(steps):
    model, criterion = nn.DataParallel(network()), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)


def compiled(steps, backend="eager"):
    plain_model, criterion = network(), triplet()
    model = torch.compile(plain_model, backend=backend)
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)


def compiled_by_aot(steps):
    return compiled(steps, "aot_eager")


def compiled_after_the_watch(steps):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    fast = torch.compile(model, backend="eager")
    for step in range(steps):
        fit(criterion(fast(noise(step)), LABELS), optimizer)


def compiled_step(steps):
    model, criterion = network(), nn.TripletMarginLoss()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}

    @torch.compile(backend="eager", fullgraph=True)
    def value(x):
        return criterion(*model(x).chunk(3))

    for step in range(steps):
        fit(value(noise(step)), optimizer)


class Several(nn.Module):
    """Gives its embeddings in a tuple or a dictionary, beside others."""

    def __init__(self, kind):
        super().__init__()
        self.net, self.kind = network(), kind

    def forward(self, x):
        z = self.net(x)
        return (z, x) if self.kind is tuple else {"embeddings": z, "x": x}


def outputs_in_a_tuple(steps):
    model, criterion = Several(tuple), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step))[0], LABELS), optimizer)


def outputs_in_a_dictionary(steps):
    model, criterion = Several(dict), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step))["embeddings"], LABELS), optimizer)


def detached_embeddings(steps):
    """Only the proxies of the criterion learn."""
    from pytorch_metric_learning.losses import ProxyNCALoss

    model, criterion = network(), ProxyNCALoss(CLASSES, DIM)
    optimizer = adam(criterion)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)).detach(), LABELS), optimizer)


def normalized_later(steps):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(functional.normalize(model(noise(step)), dim=1), LABELS), optimizer)


def nan_at_one_step(steps):
    from pytorch_metric_learning.losses import TripletMarginLoss

    model, criterion = network(), TripletMarginLoss()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        x = noise(step)
        x[0] = torch.nan if step == 12 else x[0]
        loss = criterion(model(x), LABELS)
        optimizer.zero_grad()
        loss.backward()
        if not torch.isfinite(loss):
            for parameter in model.parameters():
                parameter.grad.nan_to_num_()
        optimizer.step()


def scheduled(steps, make, before):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    schedule = make(optimizer, steps) if before else None
    yield model, criterion, optimizer, {}
    schedule = schedule or make(optimizer, steps)
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)
        on_plateau = isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau)
        schedule.step(*[1.0] * on_plateau)


def _schedules():
    from torch.optim import lr_scheduler

    makes = {
        "step": lambda o, n: lr_scheduler.StepLR(o, 10, 0.9),
        "one_cycle": lambda o, n: lr_scheduler.OneCycleLR(o, 1e-2, total_steps=n),
        "plateau": lambda o, n: lr_scheduler.ReduceLROnPlateau(o, patience=30),
        "lambda": lambda o, n: lr_scheduler.LambdaLR(o, lambda step: 0.99**step),
    }
    for name, make in makes.items():
        for before in (True, False):

            def loop(steps, make=make, before=before):
                return scheduled(steps, make, before)

            loop.__name__ = f"{name}_schedule_made_{'before' if before else 'after'}"
            yield loop


class Augmented(torch.utils.data.Dataset):
    """Draws from NumPy's and Python's streams, and keeps the labels hidden."""

    def __len__(self):
        return 96

    def __getitem__(self, index):
        x = noise(index, 1)[0] + 0.01 * np.random.rand() + 0.01 * random.random()  # noqa: NPY002
        return x.float(), index % 8, index


def a_loader(steps, workers=0):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    loader = torch.utils.data.DataLoader(
        Augmented(), 32, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    step = 0
    while step < steps:
        for x, y, index in loader:
            fit(criterion(model(x), y), optimizer)
            yield index.tolist()
            step += 1


def a_loader_with_workers(steps):
    return a_loader(steps, 2)


def copied_and_pickled(steps):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)
        if step % 10 == 5:
            for part in (model, criterion, optimizer):
                copy.deepcopy(part)
                pickle.loads(pickle.dumps(part))


def gradients_read_after_the_step(steps):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)
        yield float(nn.utils.get_total_norm([p.grad for p in model.parameters()]))


def validation_between(steps, *, no_grad=True):
    model, criterion = network(nn.Dropout(0.1)), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        model.train()
        fit(criterion(model(noise(step)), LABELS), optimizer)
        if step % 5 == 4:
            model.eval()
            with torch.set_grad_enabled(not no_grad):
                for number in range(3):
                    criterion(model(noise(1000 + number)), LABELS)


def validation_with_a_graph(steps):
    return validation_between(steps, no_grad=False)


def a_network_in_eval_mode(steps):
    model, criterion = network(nn.BatchNorm1d(16)), triplet()
    optimizer = adam(model)
    model.eval()
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)


def a_table_of_embeddings(steps):
    """The embeddings are the parameters: leaves of the graph."""
    model, criterion = nn.Embedding(ROWS, DIM), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for _ in range(steps):
        fit(criterion(model.weight, LABELS), optimizer)
        pickle.dumps(model)  # torch warns of a tensor with hooks


def one_graph_used_twice(steps):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        z = model(noise(step))
        optimizer.zero_grad()
        criterion(z, LABELS).backward(retain_graph=True)
        criterion(z, LABELS).backward()
        optimizer.step()


def widths_that_change(steps):
    """A criterion that is called on rows of two widths, in turn."""
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step))[:, : DIM - step % 2], LABELS), optimizer)


def a_memory(steps):
    model, criterion = network(), CrossBatchMemory(triplet(), size=96)
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)


def a_boundary_per_sample(steps):
    model = network()
    criterion = MarginLoss(beta_per="sample", size=ROWS, miner=Miner("hard", "hard"))
    optimizer = adam(model, criterion)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS, sample_ids=torch.arange(ROWS)), optimizer)


def a_step_that_raises(steps):
    """A closure that fails now and then, and a loop that goes on."""
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {}
    for step in range(steps):

        def closure(step=step):
            optimizer.zero_grad()
            loss = criterion(model(noise(step)), LABELS)
            loss.backward()
            if step % 9 == 4:
                raise ZeroDivisionError
            return loss

        try:
            optimizer.step(closure)
        except ZeroDivisionError:
            continue


def checkpointed_activations(steps):
    from torch.utils.checkpoint import checkpoint

    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {"layer": "2"}
    for step in range(steps):
        z = checkpoint(model, noise(step), use_reentrant=False)
        fit(criterion(z, LABELS), optimizer)


def a_rate_that_is_a_tensor(steps):
    model, criterion = network(), triplet()
    optimizer = torch.optim.Adam(model.parameters(), torch.tensor(1e-2))
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)


def cross_entropy_of_a_layer(steps):
    """A classifier, whose features are watched."""
    model, criterion = network(), nn.CrossEntropyLoss()
    head = nn.Linear(DIM, CLASSES)
    optimizer = adam(model, head)
    yield model, criterion, optimizer, {"layer": "2"}
    for step in range(steps):
        fit(criterion(head(model(noise(step))), LABELS), optimizer)


def layer_of_noise(steps):
    model, criterion = network(), triplet()
    optimizer = adam(model)
    yield model, criterion, optimizer, {"layer": "2"}
    for step in range(steps):
        fit(criterion(model(noise(step)), LABELS), optimizer)
        yield step


LOOPS = [
    *(plain, changing_batch_sizes, last_batch_of_one_row, one_row_only, empty_batch),
    *(one_class_only, singleton_classes, singleton_classes_now_and_then, string_labels),
    *(string_labels_of_a_loader, numpy_labels, reused_buffers, the_same_rows_at_every_step),
    *(two_batches_in_turn, frozen_parameters, unfrozen_later, several_optimizers_and_groups),
    *(an_optimizer_of_the_loss, lbfgs, scaled_and_autocast, accumulation, ema_copies, swa),
    *(data_parallel, compiled, compiled_by_aot, compiled_after_the_watch),
    *(outputs_in_a_tuple, outputs_in_a_dictionary, detached_embeddings, normalized_later),
    *(nan_at_one_step, *_schedules(), a_loader, a_loader_with_workers, copied_and_pickled),
    *(gradients_read_after_the_step, validation_between, validation_with_a_graph),
    *(a_network_in_eval_mode, a_table_of_embeddings, one_graph_used_twice, widths_that_change),
    *(a_memory, a_boundary_per_sample, a_step_that_raises, checkpointed_activations),
    *(a_rate_that_is_a_tensor, cross_entropy_of_a_layer, layer_of_noise),
]


# Healthy loops: the samples show their labels. What is watched must end bit for bit as unwatched.


def random_miner(steps):
    """Draws from torch's own stream: the miner has no generator."""
    model, criterion = network(), triplet("random", "semihard")
    optimizer = adam(model, lr=1e-3)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(samples(step)), LABELS), optimizer)


def pml_with_miner(steps):
    from pytorch_metric_learning.losses import TripletMarginLoss
    from pytorch_metric_learning.miners import DistanceWeightedMiner

    model, criterion, miner = network(), TripletMarginLoss(), DistanceWeightedMiner()
    optimizer = adam(model, lr=1e-3)
    yield model, criterion, optimizer, {"miner": miner}
    for step in range(steps):
        z = functional.normalize(model(samples(step)), dim=1)
        fit(criterion(z, LABELS, miner(z, LABELS)), optimizer)


def batch_norm_and_dropout(steps):
    model, criterion = network(nn.BatchNorm1d(16), nn.Dropout(0.2)), triplet("easy", "semihard")
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, 0.9)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(samples(step)), LABELS), optimizer)


class SupCon(nn.Module):
    """SupCon's own form: features [rows, views, dim], with labels or a mask."""

    def forward(self, features, labels=None, mask=None):
        n, views = features.shape[:2]
        z = torch.cat(features.unbind(1))
        if mask is None:
            mask = torch.eye(n) if labels is None else (labels[:, None] == labels).float()
        mask = mask.repeat(views, views).fill_diagonal_(0.0)
        logits = (z @ z.T / 0.1).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        scores = logits - logits.logsumexp(1, keepdim=True)
        return -((mask * scores).sum(1) / mask.sum(1)).mean()


def supcon_views(steps):
    model, criterion = network(nn.Dropout(0.1)), SupCon()
    optimizer = adam(model, lr=1e-3)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        x = samples(step)
        views = [functional.normalize(model(x + 0.1 * torch.randn_like(x)), dim=1) for _ in "ab"]
        fit(criterion(torch.stack(views, 1), LABELS), optimizer)


class ArcFace(nn.Module):
    """A head: features and labels to logits."""

    def __init__(self, scale=16.0, margin=0.2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(CLASSES, DIM))
        self.scale, self.margin = scale, margin

    def forward(self, features, labels):
        cosine = functional.linear(
            *(functional.normalize(x, dim=1) for x in (features, self.weight))
        )
        angle = cosine.clamp(-0.99, 0.99).acos() + self.margin * functional.one_hot(labels, CLASSES)
        return self.scale * angle.cos()


def arcface(steps):
    model, head, entropy = network(), ArcFace(), nn.CrossEntropyLoss()
    optimizer = adam(model, head, lr=1e-3)
    yield model, head, optimizer, {}
    for step in range(steps):
        fit(entropy(head(model(samples(step)), LABELS), LABELS), optimizer)


class NegativeCosine(nn.Module):
    """SimSiam's criterion, of a prediction and a target that is detached."""

    def forward(self, p, z):
        return -functional.cosine_similarity(p, z.detach(), dim=1).mean()


def simsiam(steps):
    model = nn.ModuleDict(
        {"backbone": network(nn.BatchNorm1d(16)), "predictor": nn.Linear(DIM, DIM)}
    )
    criterion = NegativeCosine()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, 0.9)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        x = samples(step)
        z = [model["backbone"](x + 0.1 * torch.randn_like(x)) for _ in "ab"]
        p = [model["predictor"](each) for each in z]
        fit(criterion(p[0], z[1]) / 2 + criterion(p[1], z[0]) / 2, optimizer)


def accumulation_and_clipping(steps):
    model, criterion = network(nn.Dropout(0.1)), triplet("random", "random")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        (criterion(model(samples(step)), LABELS) / 2).backward()
        if step % 2:
            yield float(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
            optimizer.step()
            optimizer.zero_grad()


def bfloat16(steps):
    model, criterion = network(nn.Dropout(0.1)), triplet("easy", "semihard")
    optimizer, scaler = adam(model, lr=1e-3), torch.amp.GradScaler("cpu")
    yield model, criterion, optimizer, {}
    for step in range(steps):
        with torch.autocast("cpu", torch.bfloat16):
            loss = criterion(model(samples(step)), LABELS)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def healthy_lbfgs(steps):
    model, criterion = network(), triplet("easy", "semihard")
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-2, max_iter=3)
    yield model, criterion, optimizer, {}
    for step in range(steps):

        def closure(step=step):
            optimizer.zero_grad()
            loss = criterion(model(samples(step)), LABELS)
            loss.backward()
            return loss

        optimizer.step(closure)


class AugmentedSamples(Augmented):
    """The same with samples that show their labels."""

    def __getitem__(self, index):
        x, label, _ = super().__getitem__(index)
        return x + 3.0 * CENTRES[label], label, index


def loader_with_augmentation(steps, workers=0):
    model, criterion = network(), triplet("random", "semihard")
    optimizer = adam(model, lr=1e-3)
    yield model, criterion, optimizer, {}
    loader = torch.utils.data.DataLoader(
        AugmentedSamples(), 32, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    for _ in range(-(-steps // len(loader))):
        for x, y, index in loader:
            fit(criterion(model(x), y), optimizer)
            yield index.tolist(), x.sum().item()


def loader_with_workers(steps):
    return loader_with_augmentation(steps, 2)


def learned_boundary_and_memory(steps):
    loss = MarginLoss(learn_beta=True, miner=Miner("random", "distance"))
    model, criterion = network(), CrossBatchMemory(loss, 96)
    optimizer = adam(model, criterion, lr=1e-3)
    yield model, criterion, optimizer, {}
    for step in range(steps):
        fit(criterion(model(samples(step)), LABELS), optimizer)


def watched_layer(steps):
    model, criterion = network(nn.BatchNorm1d(16), nn.Dropout(0.2)), nn.CrossEntropyLoss()
    model.append(nn.ReLU(inplace=True)).append(nn.Linear(DIM, CLASSES))
    optimizer = adam(model, lr=1e-3)
    yield model, criterion, optimizer, {"layer": str(len(model) - 3)}
    for step in range(steps):
        fit(criterion(model(samples(step)), LABELS), optimizer)


HEALTHY = [
    *(random_miner, pml_with_miner, batch_norm_and_dropout, supcon_views, arcface, simsiam),
    *(accumulation_and_clipping, bfloat16, healthy_lbfgs, loader_with_augmentation),
    *(loader_with_workers, learned_boundary_and_memory, watched_layer),
]


# Odd loops, in one line each: what a step does, and what it trains.


def _step(model, criterion, optimizer, step):
    fit(criterion(model(noise(step)), LABELS), optimizer)


def odd(body=_step, model=network, criterion=triplet, optimizer=adam, **options):
    def loop(steps):
        net, loss = model(), criterion()
        steps_with = optimizer(net)
        yield net, loss, steps_with, options
        for step in range(steps):
            body(net, loss, steps_with, step)

    return loop


class Lambda(nn.Module):
    """A function as a module, with a network inside where it needs one."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *args, **kwargs):
        return self.function(*self.parts, *args, **kwargs)


def spread_out(z, labels):
    return (z - z.mean(0)).square().mean(1)


def zero_head():
    model = network()
    for parameter in model[2].parameters():
        nn.init.zeros_(parameter)
    return model


def on_labels(change):
    return lambda m, c, o, s: fit(c(m(noise(s)), change(s)), o)


def on_rows(change):
    return lambda m, c, o, s: fit(c(change(m(noise(s)), s), LABELS), o)


def gradients_by_hand(model, criterion, optimizer, step):
    learned = list(model.parameters())
    gradients = torch.autograd.grad(criterion(model(noise(step)), LABELS), learned)
    for parameter, gradient in zip(learned, gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def gradient_penalty(model, criterion, optimizer, step):
    x = noise(step).requires_grad_()
    loss = criterion(model(x), LABELS)
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    fit(loss + slope.square().sum(), optimizer)


def with_closure(model, criterion, optimizer, step):
    def closure():
        optimizer.zero_grad()
        loss = criterion(model(noise(step)), LABELS)
        loss.backward()
        return loss

    optimizer.step(closure)


def zeroed_in_place(model, criterion, optimizer, step):
    optimizer.zero_grad(set_to_none=False)
    criterion(model(noise(step)), LABELS).backward()
    optimizer.step()


def all_in_autocast(model, criterion, optimizer, step):
    with torch.autocast("cpu", torch.bfloat16):
        _step(model, criterion, optimizer, step)


def then_inference(model, criterion, optimizer, step):
    _step(model, criterion, optimizer, step)
    with torch.inference_mode():
        criterion(model(noise(step)), LABELS)


def replaced_head(model, criterion, optimizer, step):
    if step == 7:
        model[2] = nn.Linear(16, 4)
        optimizer.add_param_group({"params": list(model[2].parameters())})
    _step(model, criterion, optimizer, step)


def toggled_gradients(model, criterion, optimizer, step):
    model[0].requires_grad_(step % 2 == 0)
    _step(model, criterion, optimizer, step)


def every_other_optimizer(model, criterion, optimizer, step):
    _step(model, criterion, optimizer[step % 2], step)


def pml_loss(name):
    def make():
        from pytorch_metric_learning import losses

        return getattr(losses, name)()

    return make


def optimizer_named(name, **options):
    return lambda model: getattr(torch.optim, name)(model.parameters(), **options)


def packed(gru, x, lengths):
    pack = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    return gru(pack)[1][0]


KINDS = [LABELS, [f"class {label}" for label in LABELS.tolist()], LABELS.numpy()]
ODD = {
    "float64": odd(
        lambda m, c, o, s: fit(c(m(noise(s).double()), LABELS), o), lambda: network().double()
    ),
    "bfloat16 network": odd(
        lambda m, c, o, s: fit(c(m(noise(s).bfloat16()), LABELS), o), lambda: network().bfloat16()
    ),
    "sparse gradients": odd(
        lambda m, c, o, s: fit(c(m(torch.arange(s, s + ROWS)), LABELS), o),
        lambda: nn.Embedding(200, DIM, sparse=True),
        optimizer=lambda m: torch.optim.SparseAdam(list(m.parameters())),
    ),
    "parametrised weights": odd(
        model=lambda: nn.Sequential(
            nn.utils.parametrizations.spectral_norm(nn.Linear(IN, 16)),
            nn.utils.parametrizations.weight_norm(nn.Linear(16, DIM)),
        )
    ),
    "images": odd(
        lambda m, c, o, s: fit(
            c(m(noise(s).reshape(-1, 1, 2, 4).to(memory_format=torch.channels_last)), LABELS), o
        ),
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten()),
            nn.Linear(12, DIM),
        ),
    ),
    "packed sequences": odd(
        lambda m, c, o, s: fit(
            c(m(noise(s).reshape(-1, 2, 4), lengths=torch.full((ROWS,), 2)), LABELS), o
        ),
        lambda: Lambda(packed, nn.GRU(4, DIM, batch_first=True)),
    ),
    "texts as inputs": odd(
        lambda m, c, o, s: fit(c(m(["a"] * ROWS, s), LABELS), o),
        lambda: Lambda(lambda net, texts, step: net(noise(step)), network()),
    ),
    "a dictionary as input": odd(
        lambda m, c, o, s: fit(c(m({"x": noise(s), "names": ["a"] * ROWS}), LABELS), o),
        lambda: Lambda(lambda net, given: net(given["x"]), network()),
    ),
    "labels of many kinds": odd(on_labels(lambda s: KINDS[s % 3])),
    "negative labels": odd(on_labels(lambda s: LABELS - 5)),
    "labels of one byte": odd(on_labels(lambda s: LABELS.to(torch.uint8))),
    "large labels": odd(on_labels(lambda s: LABELS * 10**15)),
    "boolean labels": odd(on_labels(lambda s: LABELS > 3), criterion=pml_loss("ContrastiveLoss")),
    "multi-hot labels": odd(
        on_labels(lambda s: functional.one_hot(LABELS, 8).float()),
        criterion=lambda: Lambda(lambda z, y: z.square().mean() + y.mean()),
    ),
    "labels now and then": odd(
        on_labels(lambda s: LABELS if s % 2 else None),
        criterion=lambda: Lambda(lambda z, y: spread_out(z, y).mean()),
    ),
    "one dimension": odd(on_rows(lambda z, s: z[:, :1])),
    "rows of 1e20": odd(on_rows(lambda z, s: 1e20 * z), criterion=pml_loss("NTXentLoss")),
    "rows of 1e-30": odd(on_rows(lambda z, s: 1e-30 * z)),
    "infinity now and then": odd(
        on_rows(lambda z, s: z * (torch.inf if s % 7 == 3 else 1.0)),
        criterion=pml_loss("NTXentLoss"),
    ),
    "a last layer of zeros": odd(model=zero_head, criterion=pml_loss("TripletMarginLoss")),
    "a loss per row": odd(
        lambda m, c, o, s: fit(c(m(noise(s)), LABELS).mean(), o),
        criterion=lambda: Lambda(spread_out),
    ),
    "a loss in a tuple": odd(
        lambda m, c, o, s: fit(c(m(noise(s)), LABELS)[0], o),
        criterion=lambda: Lambda(lambda z, y: (spread_out(z, y).mean(), {"accuracy": 0.5})),
    ),
    "a loss in a dictionary": odd(
        lambda m, c, o, s: fit(c(m(noise(s)), LABELS)["loss"], o),
        criterion=lambda: Lambda(lambda z, y: {"loss": spread_out(z, y).mean(), "z": z}),
    ),
    "gradients by hand": odd(gradients_by_hand),
    "a gradient penalty": odd(gradient_penalty, criterion=pml_loss("NTXentLoss")),
    "a closure": odd(with_closure),
    "gradients zeroed in place": odd(zeroed_in_place),
    "all in autocast": odd(all_in_autocast),
    "inference in between": odd(then_inference),
    "a head that is replaced": odd(replaced_head, snapshot_every=2),
    "gradients that are toggled": odd(toggled_gradients),
    "two optimizers in turn": odd(every_other_optimizer, optimizer=lambda m: [adam(m), adam(m)]),
    "fused Adam": odd(optimizer=optimizer_named("Adam", lr=1e-2, fused=True)),
    "AMSGrad": odd(optimizer=optimizer_named("Adam", lr=1e-2, amsgrad=True)),
    "Adagrad": odd(optimizer=optimizer_named("Adagrad", lr=0.1)),
    "RMSprop": odd(optimizer=optimizer_named("RMSprop", lr=1e-2, momentum=0.9, centered=True)),
    "Rprop": odd(optimizer=optimizer_named("Rprop", lr=1e-2)),
    "ASGD": odd(optimizer=optimizer_named("ASGD", lr=1e-2)),
    "NAdam": odd(optimizer=optimizer_named("NAdam", lr=1e-2)),
}


def run(loop, steps, *, watched=True, seed=0, **options):
    """A finished loop: its parts, its watch, and what it yielded."""
    seed_all(seed)
    running = loop(steps)
    model, criterion, optimizer, own = next(running)
    watch = uc.watch(model, criterion, optimizer, **{**own, **options}) if watched else None
    trace = list(running)
    return model, criterion, optimizer, watch, trace


def traces(model, criterion, optimizer, trace):
    """All that a loop leaves behind, as leaves."""
    streams = [torch.get_rng_state(), np.random.get_state()[1:], random.getstate()]  # noqa: NPY002
    gradients = [parameter.grad for parameter in model.parameters()]
    states = [part.state_dict() for part in (model, criterion, optimizer)]
    return tree_leaves([states, dict(model.named_buffers()), gradients, streams, trace])


def assert_equal_bit_for_bit(some, others):
    assert len(some) == len(others)
    for a, b in zip(some, others, strict=True):
        if isinstance(a, torch.Tensor | np.ndarray):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        else:
            assert repr(a) == repr(b)
