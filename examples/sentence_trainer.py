"""Fine-tune a sentence-transformers model with a guarded triplet loss.

    pip install 'uncollapse[huggingface]'
    python examples/sentence_trainer.py

A small table of word vectors stands in for your model, so that nothing is downloaded.
"""

import tempfile

import datasets
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

import uncollapse as uc

WORDS = ["cat", "kitten", "cats", "dog", "puppy", "dogs", "car", "cars", "truck"]


def word_vectors() -> SentenceTransformer:
    tokenizer = Tokenizer(
        models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="cat")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")


def main() -> None:
    model = word_vectors()
    texts = {"text": WORDS * 8, "label": [0, 0, 0, 1, 1, 1, 2, 2, 2] * 8}
    loss = uc.SentenceLoss(
        model, uc.TripletLoss(margin=0.2, miner=uc.Miner("hard", "hard")), action="rescue"
    )
    with tempfile.TemporaryDirectory() as folder:
        options = SentenceTransformerTrainingArguments(
            folder,
            max_steps=30,
            per_device_train_batch_size=24,
            batch_sampler="group_by_label",
            report_to="none",
            save_strategy="no",
            use_cpu=True,
        )
        data = datasets.Dataset.from_dict(texts)
        SentenceTransformerTrainer(model, options, data, loss=loss, callbacks=[loss]).train()
    print(loss.guard.events)
    print(f"ends {loss.monitor.verdict}")


if __name__ == "__main__":
    main()
