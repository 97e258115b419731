"""Published models as files: random MarianMT models with locally trained SentencePiece models, in both formats."""

import json
import shutil

import numpy as np
import pytest
import torch
import yaml

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

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


def train_pieces(folder, name, lines, kind):
    path = folder / f"{name}.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(path),
        model_prefix=str(folder / name),
        vocab_size=160,
        model_type=kind,
        minloglevel=2,
        character_coverage=0.995,
        hard_vocab_limit=False,
    )
    (folder / f"{name}.model").rename(folder / f"{name}.spm")
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))


def write_marian(folder, kind="unigram", tags=(), target_lines=LINES[3:], **options):
    """Write a random MarianMT model with locally trained SentencePiece models; the model and its tokenizers."""
    sides = {"source": LINES, "target": target_lines}
    models = [train_pieces(folder, name, lines, kind) for name, lines in sides.items()]
    pieces = [model.id_to_piece(index) for model in models for index in range(3, model.vocab_size())]
    names = ["</s>", "<unk>", *tags, *dict.fromkeys(pieces)]
    names = [*names[:-2], "<pad>"]  # Two pieces have no entry.
    (folder / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}))
    pad = len(names) - 1
    config = transformers.MarianConfig(
        **{
            **dict(vocab_size=len(names), d_model=32, encoder_layers=2, decoder_layers=2, scale_embedding=True),
            **dict(encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48),
            **dict(activation_function="swish", pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad),
            **dict(forced_eos_token_id=None, max_position_embeddings=64),
            **options,
        }
    )
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:  # A table of sines that no published model changes.
                torch.nn.init.normal_(weight, std=0.3)
        model.final_logits_bias.normal_()
    model.save_pretrained(folder)
    return model, models


def entries_of(folder, name="vocab.json"):
    """The vocabulary of Marian."""
    return json.loads((folder / name).read_text(encoding="utf-8"))


def write_two_vocabularies(folder, source_lines=LINES, target_lines=LINES[:40]):
    """Write a random MarianMT model with a vocabulary of its own for each side; the model and its SentencePiece models.

    The paddings are the last entries with embeddings of zeros, as in Marian's own files, but that of a larger target.
    """
    models, names = [], []
    for side, lines in (("source", source_lines), ("target", target_lines)):
        models.append(train_pieces(folder, side, lines, "unigram"))
        pieces = [models[-1].id_to_piece(index) for index in range(3, models[-1].vocab_size())]
        is_last = side == "source" or len(pieces) < len(names[0]) - 3  # transformers needs one place for both.
        names.append(["</s>", "<unk>", *pieces, "<pad>"] if is_last else ["</s>", "<unk>", "<pad>", *pieces])
    for name, entries in zip(("vocab.json", "target_vocab.json"), names, strict=True):
        (folder / name).write_text(json.dumps({entry: index for index, entry in enumerate(entries)}))
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": True, "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    pad = names[1].index("<pad>")
    config = transformers.MarianConfig(
        **dict(vocab_size=len(names[0]), decoder_vocab_size=len(names[1]), d_model=32, scale_embedding=True),
        **dict(encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4),
        **dict(encoder_ffn_dim=48, decoder_ffn_dim=48, activation_function="swish", max_position_embeddings=64),
        **dict(pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=None),
        **dict(share_encoder_decoder_embeddings=False, tie_word_embeddings=False),
    )
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                torch.nn.init.normal_(weight, std=0.3)
        model.final_logits_bias.normal_()
        for table in (model.get_encoder().embed_tokens, model.get_decoder().embed_tokens, model.lm_head):
            table.weight[-1] = 0
        model.final_logits_bias[:, -1] = -1e9
    model.save_pretrained(folder)
    return model, models


def write_native(theirs, source_folder, folder, is_tied=True):
    """The same model in Marian's own files; the embedding of its padding must be zeros, and its last entry."""
    folder.mkdir()
    state = {name: weight.numpy() for name, weight in theirs.state_dict().items()}
    arrays = {"Wemb": state["model.shared.weight"][:-1]} if is_tied else {}
    if not is_tied:
        arrays |= {f"{side}_Wemb": state[f"model.{side}.embed_tokens.weight"][:-1] for side in ("encoder", "decoder")}
        arrays["decoder_ff_logit_out_W"] = state["lm_head.weight"][:-1].T
    arrays["decoder_ff_logit_out_b"] = state["final_logits_bias"][:, :-1]
    for name, weight in state.items():
        if ".layers." not in name:
            continue
        _, stack, _, number, *module, kind = name.split(".")
        scope = f"{stack}_l{int(number) + 1}"
        block = {"self_attn": "self", "encoder_attn": "context"}.get(module[0].removesuffix("_layer_norm"))
        if module[0].endswith("layer_norm"):
            norm = f"{scope}_{block}_Wo_ln_" if block else f"{scope}_ffn_ffn_ln_"
            arrays[norm + ("scale" if kind == "weight" else "bias")] = weight[None]
        else:
            part = module[-1][0] if block else module[-1].removeprefix("fc")
            place = f"{scope}_{block}" if block else f"{scope}_ffn"
            arrays[f"{place}_{'W' if kind == 'weight' else 'b'}{part}"] = weight.T if kind == "weight" else weight[None]
    config = theirs.config
    options = {
        **{"type": "transformer", "dim-emb": config.d_model, "enc-depth": config.encoder_layers},
        **{"dec-depth": config.decoder_layers, "transformer-heads": config.encoder_attention_heads},
        **{"transformer-dim-ffn": config.encoder_ffn_dim, "transformer-ffn-activation": config.activation_function},
        **{"transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-emb": "d"},
        **{"transformer-postprocess-top": "", "transformer-decoder-autoreg": "self-attention"},
        **{"transformer-no-projection": False, "transformer-guided-alignment-layer": "last"},
    }
    text = yaml.safe_dump(options).encode() + b"\0"
    arrays["special:model.yml"] = np.frombuffer(text, np.int8)
    np.savez(folder / "model.npz", **arrays)
    has_two = (source_folder / "target_vocab.json").exists()
    for name, given in (
        ("vocab.yml", "vocab.json"),
        ("vocab.trg.yml", "target_vocab.json" if has_two else "vocab.json"),
    ):
        vocabulary = entries_of(source_folder, given)
        names = [name for name in sorted(vocabulary, key=vocabulary.__getitem__) if name != "<pad>"]
        lines = [f"{json.dumps(name, ensure_ascii=False)}: {index}\n" for index, name in enumerate(names)]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    vocabs = ["vocab.yml", "vocab.yml" if is_tied else "vocab.trg.yml"]
    decoder = {"models": ["model.npz"], "vocabs": vocabs, "beam-size": 6}
    (folder / "decoder.yml").write_text(yaml.safe_dump(decoder))
    for side in ("source", "target"):
        shutil.copy(source_folder / f"{side}.spm", folder)
