"""Published models as files: random MarianMT models with locally trained SentencePiece models."""

import json
from io import BytesIO

import pytest
import sentencepiece

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
LINES = [
    *(
        " ".join(NUMBERS[(start + step * number) % 12] for number in range(6))
        for start in range(12)
        for step in range(1, 12)
    ),
    "The quick brown fox, it jumps over the lazy dog!",
    "Ein Mann schläft in einem grünen Raum auf einem Sofa.",
    "Ὁ δράκων ἐστὶ μέγας. Τρία σκυλιά;",
    "Он читает книгу в саду — вчера.",
    "الكلب ينام في البيت",
    "ﬁne ½ ｗｉｄｅ  two   spaces ",
]


def train_pieces(folder, name, lines, kind="unigram", **options):
    """Train a SentencePiece model as `NAME.spm` and load it."""
    content = BytesIO()
    defaults = {"vocab_size": 160, "character_coverage": 0.995, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=content, model_type=kind, **defaults | options
    )
    (folder / f"{name}.spm").write_bytes(content.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=content.getvalue())


def pieces_of(model):
    return [model.id_to_piece(index) for index in range(3, model.vocab_size())]


def write_entries(path, entries):
    path.write_text(json.dumps({entry: index for index, entry in enumerate(entries)}))


def entries_of(folder, name="vocab.json"):
    """The vocabulary of Marian."""
    return json.loads((folder / name).read_text(encoding="utf-8"))


def random_model(pad, num_entries, **options):
    """A MarianMT model whose padding is its entry `pad`."""
    import torch

    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    defaults = {
        **dict(vocab_size=num_entries, d_model=32, encoder_layers=2, decoder_layers=2, scale_embedding=True),
        **dict(encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48),
        **dict(activation_function="swish", pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad),
        **dict(forced_eos_token_id=None, max_position_embeddings=64),
    }
    torch.manual_seed(1)
    model = transformers.MarianMTModel(transformers.MarianConfig(**defaults | options)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:  # A table of sines that no published model changes.
                torch.nn.init.normal_(weight, std=0.3)
        model.final_logits_bias.normal_()
    return model


def forget_padding(model):
    """Give the last entry zeros and a bias with which it is never generated, as Marian's own files have it."""
    import torch

    with torch.no_grad():
        for table in (model.get_encoder().embed_tokens, model.get_decoder().embed_tokens, model.lm_head):
            table.weight[-1] = 0
        model.final_logits_bias[:, -1] = -1e9


def write_marian(folder, kind="unigram", tags=(), target_lines=LINES[3:], **options):
    """Write a random MarianMT model with one vocabulary; the model and its SentencePiece models."""
    models = [train_pieces(folder, "source", LINES, kind), train_pieces(folder, "target", target_lines, kind)]
    entries = ["</s>", "<unk>", *tags, *dict.fromkeys(piece for model in models for piece in pieces_of(model))]
    entries = [*entries[:-2], "<pad>"]  # Two pieces have no entry.
    write_entries(folder / "vocab.json", entries)
    model = random_model(len(entries) - 1, len(entries), **options)
    model.save_pretrained(folder)
    return model, models


def write_two_vocabularies(folder):
    """Write a random MarianMT model with a vocabulary of its own for each side; the model and its SentencePiece models.

    The paddings are the last entries with embeddings of zeros, as in Marian's own files.
    """
    models = [train_pieces(folder, "source", LINES), train_pieces(folder, "target", LINES[:40])]
    vocabularies = [["</s>", "<unk>", *pieces_of(model), "<pad>"] for model in models]
    source, target = vocabularies
    write_entries(folder / "vocab.json", source)
    write_entries(folder / "target_vocab.json", target)
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": True, "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    untied = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    model = random_model(target.index("<pad>"), len(source), decoder_vocab_size=len(target), **untied)
    forget_padding(model)
    model.save_pretrained(folder)
    return model, models
