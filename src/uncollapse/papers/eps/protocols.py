"""EPS §5 and appendix C as data: what is trained, on what, at which scale.

Where the paper is silent (classes a batch, length of training, learning rate on MNIST) the choice
is named in `differs`.
"""

from __future__ import annotations

from typing import Any

from uncollapse.papers.eps._study import Setup, Study

__all__ = ["CARS", "CARS512", "CUB", "CUB512", "MNIST", "OMNIGLOT", "TIMES"]

TIMES = {"smoke": "seconds", "laptop": "minutes", "paper": "hours, GPU"}
_OFF = {"action": "off"}
# On a laptop: 25 epochs of Omniglot, 4 of MNIST.
LETTER_STEPS = 3000
DIGIT_STEPS = 900


def _length(steps: int, looks: int = 1) -> dict[str, Any]:
    """`[train]`: so many steps, evaluated `looks` times, saved as often."""
    often = max(1, steps // looks)
    return {
        "steps": steps,
        "evaluate_every": often,
        "checkpoint_every": often,
        "log_every": max(1, often // 5),
        "tensorboard": "off",
    }


# EPS §5.1 and appendix C: digits 0-5 by odd and even, a shallow network into the plane.
_MNIST: dict[str, Any] = {
    "data": {"name": "mnist-parity", "eval_splits": ["val", "test"]},
    "model": {"backbone": "mnist-cnn", "dim": 2},
    "batch": {"p": 2, "k": 80},
    "optimiser": {"name": "adam", "lr": 1e-3},
    "evaluate": {"ks": [1, 5, 10]},
    "guard": _OFF,
}
_MNIST_OPEN = (
    "The paper gives neither batch, optimiser, learning rate, margin nor length of training for "
    "MNIST, nor how negatives are drawn; here 80 even and 80 odd digits a batch (160 as elsewhere "
    "in the paper), Adam 1e-3, margin 1 and semi-hard negatives"
)
MNIST = Study(
    "mnist",
    {
        "smoke": Setup(
            _MNIST
            | {
                "model": {"backbone": "mlp", "hidden": [32], "dim": 2},
                "batch": {"p": 2, "k": 16},
                "train": _length(20),
            },
            seeds=2,
            words="a perceptron of 32, dim 2, batch 2 × 16, 20 steps",
            differs="Smoke: a small perceptron and a few steps. It shows that the table is made, "
            "not what the paper says.",
        ),
        "laptop": Setup(
            _MNIST
            | {
                "data": {"name": "mnist-parity", "eval_splits": []},
                "optimiser": {"name": "adam", "lr": 1e-3, "schedule": "cosine"},
                "train": _length(DIGIT_STEPS),
            },
            seeds=5,
            words="the paper's network (two convolutions, dense 128), dim 2, batch 2 × 80, "
            f"Adam 1e-3 falling to 0 as a cosine, {DIGIT_STEPS:,} steps (4 epochs)",
            differs=f"{_MNIST_OPEN}, {DIGIT_STEPS:,} steps. The margin (0.2, 1 or 10), the "
            "negatives (semi-hard, hard or random), the learning rate (1e-3 or 3e-4) and the start "
            "(He or PyTorch's) were chosen by short EPS runs of seed 0; batch (2 × 40 or 2 × 80), "
            "length and schedule by runs with seeds 100 and 101, which are not among those "
            "reported.",
        ),
        "paper": Setup(
            _MNIST | {"train": _length(3000, 10)},
            seeds=8,
            words="the paper's network (two convolutions, dense 128), dim 2, batch 2 × 80, "
            "Adam 1e-3, 3,000 steps (13 epochs)",
            differs=f"{_MNIST_OPEN}, 3,000 steps.",
        ),
    },
)

# EPS appendix C: ResNet-50 from ImageNet, 80 × 80, dim 128, Adam 1e-5, batch 160.
_OMNIGLOT: dict[str, Any] = {
    "data": {"name": "omniglot", "eval_splits": ["test"], "workers": 4},
    "model": {"backbone": "resnet50", "dim": 128, "normalize": True, "init": "eps"},
    "batch": {"p": 4, "k": 40},
    "optimiser": {"name": "adam", "lr": 1e-5, "loss_lr": 5e-4},
    "evaluate": {"ks": [1, 2, 4, 8]},
    "guard": _OFF,
}
_EMBEDDED = (
    "Smoke: digits by odd and even in the place of letters by alphabet, a small perceptron and a "
    "few steps. It shows that the table is made, not what the paper says."
)
_SMALL: dict[str, Any] = {
    "data": {"name": "mnist-parity", "eval_splits": ["val"]},
    "model": {"backbone": "mlp", "hidden": [32], "dim": 16, "normalize": True},
    "batch": {"p": 2, "k": 16},
    "optimiser": {"name": "adam", "lr": 1e-3},
    "evaluate": {"ks": [1]},
    "guard": _OFF,
    "train": _length(20, 2),
}
OMNIGLOT = Study(
    "omniglot",
    {
        "smoke": Setup(
            _SMALL | {"data": {"name": "mnist-parity", "eval_splits": ["test"]}},
            seeds=2,
            words="a perceptron of 32, dim 16, batch 2 × 16, 20 steps",
            differs=_EMBEDDED,
        ),
        "laptop": Setup(
            _OMNIGLOT
            | {
                "data": {"name": "omniglot", "eval_splits": ["test"], "size": 28},
                "model": {
                    "backbone": "uncollapse.papers.eps.letters_net:letters_net",
                    "dim": 128,
                    "normalize": True,
                },
                "optimiser": {"name": "adam", "lr": 1e-3, "schedule": "cosine"},
                "train": _length(LETTER_STEPS, 6),
            },
            seeds=3,
            words="three convolutions (0.13 million weights), 28 × 28, dim 128 on the sphere, "
            f"batch 4 alphabets × 40, Adam 1e-3 falling to 0 as a cosine, {LETTER_STEPS:,} steps "
            f"({LETTER_STEPS / 120.5:.0f} epochs)",
            differs="A network of three convolutions from scratch instead of ResNet-50 from "
            "ImageNet, 28 × 28 instead of 80 × 80, learning rate 1e-3 falling to 0 instead of "
            f"1e-5, {LETTER_STEPS:,} steps, fewer seeds than its 8. The paper does not say how "
            "many alphabets share its batch of 160; here 4 of 40 images, the most positives of its "
            "Fig. 3b. Network and learning rate (1e-3 or 5e-3) were chosen by short runs of "
            "EPS + Trip. + SH with seed 0, length and schedule with seed 100, which is not among "
            "those reported.",
        ),
        "paper": Setup(
            _OMNIGLOT | {"train": _length(6000, 50)},
            seeds=8,
            words="ResNet-50 from ImageNet, 80 × 80, dim 128 on the sphere, batch 4 alphabets × "
            "40, Adam 1e-5, 6,000 steps (50 epochs)",
            differs="The paper does not say how many alphabets share its batch of 160; here 4 of "
            "40 images, the most positives of its Fig. 3b. Nor the length of training; here the 50 "
            "epochs of its Fig. 3a, and the last network, not the best.",
            pretrained=True,
        ),
    },
)


def _photographs(name: str, epoch: int) -> Study:
    """Cars196 or CUB200: EPS §5.2 and appendix C; `epoch` is its length in steps of 160."""
    paper = _OMNIGLOT | {
        "data": {"name": name, "eval_splits": ["test"], "augment": "paper", "workers": 4},
        "batch": {"p": 10, "k": 16},
        "evaluate": {"ks": [1, 2, 4]},
        "train": _length(150 * epoch, 30),
    }
    laptop = paper | {
        "data": {"name": name, "eval_splits": ["test"], "size": 64},
        "model": {"backbone": "conv2", "dim": 128, "normalize": True},
        "batch": {"p": 10, "k": 8},
        "optimiser": {"name": "adam", "lr": 3e-4},
        "train": _length(200),
    }
    return Study(
        name,
        {
            "smoke": Setup(
                _SMALL | {"data": {"name": "digits", "eval_splits": ["test"]}},
                seeds=2,
                words="a perceptron of 32, dim 16, batch 2 × 16, 20 steps",
                differs="Smoke: scikit-learn's digits, a small perceptron and a few steps. It "
                "shows that the table is made, not what the paper says.",
            ),
            "laptop": Setup(
                laptop,
                seeds=1,
                words="two convolutions, 64 × 64, dim 128 on the sphere, batch 10 × 8, Adam 3e-4, "
                "200 steps",
                differs="Two convolutions from scratch instead of ResNet-50 from ImageNet, 64 × 64 "
                "instead of 224 × 224 without augmentation, 200 steps, 1 seed instead of 8.",
            ),
            "paper": Setup(
                paper,
                seeds=8,
                words="ResNet-50 from ImageNet, 224 × 224, dim 128 on the sphere, batch 10 × 16, "
                f"Adam 1e-5, {150 * epoch:,} steps (150 epochs)",
                differs="The paper does not say how many classes share its batch of 160, nor how "
                "long it trains; here 10 of 16 images, and the 150 epochs of Roth et al.",
                pretrained=True,
            ),
        },
    )


def _inception(base: Study) -> Study:
    """Table 6: BN-Inception, dim 512, batch 260 (appendix C), as Wang et al. 2019."""
    setups = dict(base.setups)
    paper = setups["paper"]
    setups["paper"] = Setup(
        {
            **paper.config,
            "model": {"backbone": "bn-inception", "dim": 512, "normalize": True, "init": "eps"},
            "batch": {"p": 52, "k": 5},
        },
        seeds=8,
        words="BN-Inception from ImageNet, 224 × 224, dim 512 on the sphere, batch 52 × 5, Adam "
        f"1e-5, {paper.config['train']['steps']:,} steps",
        differs="The paper gives the batch of 260 only; here 52 classes of 5 images, as Wang et "
        "al. 2019, and as many steps as for Table 2.",
        pretrained=True,
    )
    laptop = setups["laptop"]
    setups["laptop"] = Setup(
        {**laptop.config, "model": {**laptop.config["model"], "dim": 512}},
        seeds=laptop.seeds,
        words=laptop.words.replace("dim 128", "dim 512"),
        differs=laptop.differs.replace("ResNet-50", "BN-Inception"),
    )
    return Study(f"{base.name}-512", setups)


CARS = _photographs("cars196", 50)
CUB = _photographs("cub200", 36)
CARS512 = _inception(CARS)
CUB512 = _inception(CUB)
