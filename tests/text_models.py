"""A tiny transformer as a folder of sentence-transformers, made offline, with random weights."""

import json

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "freeze", "block", "my", "card", "account", "please", "rain", "snow", "today", "tomorrow", "is", "it", "will", "the", "weather", "cold", "play", "a", "song", "music", "loud"]


def make_sentence_model(folder, width=16, longest=12, last_unit=False):
    """Write the model; its parts are a transformer, mean pooling and, if asked, the unit sphere."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=longest,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = BertModel(
            BertConfig(
                vocab_size=len(WORDS),
                hidden_size=width,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=2 * width,
                max_position_embeddings=longest,
            )
        )
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
