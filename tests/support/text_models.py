"""Networks for texts: one of letters, and a tiny transformer as sentence-transformers keeps it."""

import json

import torch
from torch import nn

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "freeze", "block", "my", "card", "account", "please"]
WORDS += ["rain", "snow", "today", "tomorrow", "is", "it", "will", "the", "weather", "cold", "play"]
WORDS += ["a", "song", "music", "loud"]


class LetterCounts(nn.Module):
    """How often each byte occurs in a text, through a linear layer."""

    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(256, dim)

    def forward(self, rows):
        counts = nn.functional.one_hot(rows.long(), 256).sum(1).float()
        counts[:, 0] = 0.0  # padding
        return self.linear(counts)


def letters(dim):
    """For `model.backbone = "support.text_models:letters"`."""
    return LetterCounts(dim)


def make_sentence_model(folder, width=16, longest=12, last_unit=False):
    """Write a model with random weights, offline: a transformer, mean pooling, the unit sphere."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {f"{name.lower()}_token": f"[{name}]" for name in ("UNK", "PAD", "CLS", "SEP")}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=longest, **special)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        depth = {"num_hidden_layers": 1, "num_attention_heads": 2}
        sizes = {"hidden_size": width, "intermediate_size": 2 * width}
        words = {"vocab_size": len(WORDS), "max_position_embeddings": longest}
        network = BertModel(BertConfig(**depth, **sizes, **words))
    fast.save_pretrained(folder)
    network.save_pretrained(folder)
    parts = [("", "Transformer"), ("1_Pooling", "Pooling")]
    parts += [("2_Normalize", "Normalize")] if last_unit else []
    listed = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(parts)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder
