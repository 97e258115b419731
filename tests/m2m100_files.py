"""Published models as files: random M2M100 and NLLB models with locally trained SentencePiece models."""

import json

import pytest
import torch
from marian_files import LINES, pieces_of, train_pieces

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
NLLB_LANGUAGES = ("ayr_Latn", "eng_Latn", "fao_Latn", "quy_Latn", "rus_Cyrl", "spa_Latn")
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
CARD = "---\nlanguage:\n- ay\nlicense: cc-by-nc-4.0\ntags:\n- nllb\n---\n\n# Model\n\nlicense: mit\n"


def random_m2m100(vocab_size, **options):
    """An M2M100 model with random weights and no zeros."""
    defaults = {
        **dict(vocab_size=vocab_size, d_model=32, encoder_layers=2, decoder_layers=2, max_position_embeddings=64),
        **dict(encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48),
    }
    torch.manual_seed(1)
    model = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**defaults | options)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.3)
        bias = model.model.decoder.layer_norm.bias
        model.model.shared.weight[2] += 2 * bias / bias.norm()  # So that translations end.
    model.generation_config.max_length = 200
    return model


def write_m2m100(folder, kind="unigram", lines=LINES, **options):
    """Write a random model in the layout of facebook/m2m100_418M; the model and its tokenizer."""
    pieces = train_pieces(folder, "spm", lines, kind)
    (folder / "spm.spm").rename(folder / "sentencepiece.bpe.model")
    entries = [*SPECIAL, *pieces_of(pieces)]
    (folder / "vocab.json").write_text(json.dumps({entry: index for index, entry in enumerate(entries)}))
    tokenizer = transformers.M2M100Tokenizer(folder / "vocab.json", folder / "sentencepiece.bpe.model")
    model = random_m2m100(len(entries) + 108, **options)
    model.save_pretrained(folder)
    (folder / "README.md").write_text(CARD, encoding="utf-8")
    return model, tokenizer


def write_nllb(folder, kind="bpe", lines=LINES, languages=NLLB_LANGUAGES, **options):
    """Write a random model in the layout of facebook/nllb-200-distilled-600M; the model and its tokenizer."""
    train_pieces(folder, "spm", lines, kind)
    (folder / "spm.spm").rename(folder / "sentencepiece.bpe.model")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "NllbTokenizer"}))
    tokenizer = transformers.NllbTokenizer.from_pretrained(folder, additional_special_tokens=list(languages))
    tokenizer.save_pretrained(folder)
    model = random_m2m100(len(tokenizer), **options)
    model.save_pretrained(folder)
    (folder / "README.md").write_text(CARD, encoding="utf-8")
    return model, tokenizer
