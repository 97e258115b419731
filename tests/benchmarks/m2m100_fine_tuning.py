"""An M2M100 of four languages, trained by `transformers`, then fine-tuned to one: by `mt` and by Seq2SeqTrainer.

    python tests/benchmarks/m2m100_fine_tuning.py --data ../shared/data/americas --output proof

Needs `transformers`, `sentencepiece` and `accelerate`. A small model (NLLB layout) learns Spanish to Guarani, Shipibo
and some Aymara in a plain loop. Then it is fine-tuned to Aymara, in fp32 on one thread, by

- `mt`, whose batches have pairs of similar length,
- Seq2SeqTrainer with the very same batches, and
- Seq2SeqTrainer with its default, 32 random pairs.

All train on the same pairs, without filters, 32 pairs an update on average, with the same AdamW, schedule and dropout,
and without label smoothing, with which Seq2SeqTrainer fails for M2M100. Printed are the means of some seeds: the loss
of the development set in nats per token, by `transformers` for all; chrF of its greedy translations by `generate`, of
`mt` by `mt`; and the time of the processor, which a busy machine changes less than the time of a clock. The time of
`mt` includes its start, reading and two validations.
"""

import argparse
import json
import random
import resource
import statistics
import time
from itertools import count
from pathlib import Path

import common
import numpy as np
import sentencepiece
import torch
import transformers
from sacrebleu.metrics import CHRF

from mt_cli.batching.batches import MixedPairs, epoch_batches, split_by_length
from mt_cli.batching.encoded import EncodedPairs

LANGUAGES = {"gn": "grn_Latn", "shp": "shp_Latn", "aym": "ayr_Latn"}
SOURCE, TARGET = "spa_Latn", "ayr_Latn"
SIZES = {
    **{"d_model": 128, "encoder_layers": 3, "decoder_layers": 3, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "attention_dropout": 0.0, "dropout": 0.1},
}
MAX_TOKENS, PAIRS_PER_UPDATE = 80, 32
DECODING = {"beam_size": 1, "max_length": 60, "max_length_ratio": 100}
FILTERS = ("control_characters", "garbled", "identical", "wrong_language", "duplicates", "overlap")
LIMITS = ("max_characters", "max_length_ratio", "min_script_share")
NO_FILTERS = dict.fromkeys(FILTERS, False) | dict.fromkeys(LIMITS)


def pairs_of(data, language, split):
    """Source and target lines of a language."""
    sides = [common.read_lines(data / language / f"{split}.{side}") for side in ("es", language)]
    return [(source.strip(), target.strip()) for source, target in zip(*sides, strict=True)]


def make_folder(data, folder):
    """Write an untrained model with a SentencePiece model of all languages."""
    folder.mkdir(parents=True)
    lines = [text for language in LANGUAGES for pair in pairs_of(data, language, "train") for text in pair]
    random.Random(1).shuffle(lines)
    (folder / "text").write_text("\n".join(lines[:40_000]), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "spm"), model_type="bpe", vocab_size=4000, minloglevel=2
    )
    (folder / "spm.model").rename(folder / "sentencepiece.bpe.model")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "NllbTokenizer"}))
    languages = [SOURCE, *LANGUAGES.values()]
    tokenizer = transformers.NllbTokenizer.from_pretrained(folder, additional_special_tokens=languages)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.M2M100Config(vocab_size=len(tokenizer), encoder_layerdrop=0.0, decoder_layerdrop=0.0, **SIZES)
    transformers.M2M100ForConditionalGeneration(config).save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n", encoding="utf-8")


def encoded(folder, pairs, language):
    """Ids and labels of all pairs."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, src_lang=SOURCE, tgt_lang=language)
    rows = tokenizer([source for source, _ in pairs], text_target=[target for _, target in pairs])
    both = zip(rows["input_ids"], rows["labels"], strict=True)
    return [{"input_ids": ids, "labels": labels} for ids, labels in both]


def is_short(row):
    """Whether a pair is not too long."""
    return max(map(len, row.values())) <= MAX_TOKENS


def train_parent(data, folder, steps):
    """Train in a plain loop: batches of 32 pairs of similar length, AdamW, a linear schedule."""
    rows = [
        row
        for language, code in LANGUAGES.items()
        for row in encoded(folder, pairs_of(data, language, "train")[: 2000 if code == TARGET else None], code)
        if is_short(row)
    ]
    rows.sort(key=lambda row: len(row["labels"]))
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(folder).train()
    collate = transformers.DataCollatorForSeq2Seq(transformers.AutoTokenizer.from_pretrained(folder), model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    generator = random.Random(1)
    for _ in range(steps):
        start = generator.randrange(len(rows) - 32)
        model(**collate(rows[start : start + 32])).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


class SimilarBatches(transformers.Seq2SeqTrainer):
    """Trainer with the batches of `mt`: pairs of similar length."""

    batch_tokens = 0

    def get_train_dataloader(self):
        """Batches in the order of `mt`, without end."""
        rows, seed = self.train_dataset, self.args.seed
        pairs = MixedPairs(as_pairs(rows), [1.0], self.batch_tokens, seed)
        epochs = (epoch_batches(pairs, self.batch_tokens, seed, epoch) for epoch in count())
        batches = (batch.indices.tolist() for epoch in epochs for batch in epoch)
        needed = [next(batches) for _ in range(self.args.max_steps)]
        return torch.utils.data.DataLoader(rows, batch_sampler=needed, collate_fn=self.data_collator)


def as_pairs(rows):
    """Pairs as `mt` holds them, without the last token."""
    return EncodedPairs.from_ids(*([row[key][:-1] for row in rows] for key in ("input_ids", "labels")))


def tokens_for(rows):
    """The smallest `batch_tokens` with which an epoch has no more batches than of 32 pairs."""
    pairs = as_pairs(rows)
    order = np.arange(len(pairs))

    def num_batches(tokens):
        return len(split_by_length(order, pairs.lengths(order) + 1, tokens))

    return next(tokens for tokens in count(100, 10) if num_batches(tokens) <= len(rows) / PAIRS_PER_UPDATE)


def fine_tune_with_trainer(rows, folder, output, options, seed, batch_tokens=None):
    """Fine-tune with Seq2SeqTrainer, with batches of `mt` if `batch_tokens` is given; seconds of the processor."""
    transformers.set_seed(seed)
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, src_lang=SOURCE, tgt_lang=TARGET)
    arguments = transformers.Seq2SeqTrainingArguments(
        output_dir=str(output / "state"),
        **{"max_steps": options.steps, "per_device_train_batch_size": PAIRS_PER_UPDATE, "learning_rate": options.rate},
        **{"lr_scheduler_type": "linear", "warmup_steps": options.steps // 10, "weight_decay": 0.0},
        **{"adam_beta2": 0.98, "adam_epsilon": 1e-9, "max_grad_norm": 1.0},
        **{"save_strategy": "no", "report_to": [], "use_cpu": True, "seed": seed, "disable_tqdm": True},
    )
    collate = transformers.DataCollatorForSeq2Seq(tokenizer, model)
    kind = transformers.Seq2SeqTrainer if batch_tokens is None else SimilarBatches
    trainer = kind(model, arguments, collate, rows, processing_class=tokenizer)
    trainer.batch_tokens = batch_tokens
    started = time.process_time()
    trainer.train()
    seconds = time.process_time() - started
    trainer.save_model(str(output))
    return seconds


@torch.inference_mode()
def loss_of(folder, pairs):
    """Mean loss of the target tokens of pairs, in nats."""
    rows = encoded(folder, pairs, TARGET)
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(folder).eval()
    losses = [
        model(**{key: torch.tensor([ids]) for key, ids in row.items()}).loss.item() * len(row["labels"]) for row in rows
    ]
    return sum(losses) / sum(len(row["labels"]) for row in rows)


def translations(folder, lines):
    """Greedy translations by `generate`."""
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, src_lang=SOURCE, tgt_lang=TARGET)
    results = []
    for start in range(0, len(lines), 16):
        batch = tokenizer(lines[start : start + 16], return_tensors="pt", padding=True)
        output = model.generate(
            **batch,
            forced_bos_token_id=tokenizer.convert_tokens_to_ids(TARGET),
            **{"num_beams": 1, "max_length": None, "max_new_tokens": DECODING["max_length"]},
        )
        results += tokenizer.batch_decode(output, skip_special_tokens=True)
    return results


def write_text(output, split, pairs):
    """Write the files of a split for `mt`."""
    for side, texts in zip(("es", "aym"), zip(*pairs, strict=True), strict=True):
        (output / f"{split}.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def fine_tune_with_mt(output, options, seed, batch_tokens):
    """Fine-tune and export with `mt`; seconds of the processor in training."""
    name, steps = f"child-{seed}", options.steps
    tree = {
        "name": name,
        "init": {"run": "runs/parent"},
        "corpus": {
            **{"source": SOURCE, "target": TARGET, "tag": "direction", "max_tokens": MAX_TOKENS, "filters": NO_FILTERS},
            **{"train": {"files": ["train.es", "train.aym"]}, "valid": {"files": ["dev.es", "dev.aym"]}},
        },
        "model": {"dropout": 0.1},
        "training": {
            **{"max_steps": steps, "validate_every_steps": steps, "batch_tokens": batch_tokens, "precision": "fp32"},
            **{"learning_rate": options.rate, "schedule": "linear", "warmup_steps": steps // 10, "seed": seed},
            **{"weight_decay": 0.0, "label_smoothing": 0.0, "max_grad_norm": 1.0, "num_threads": 1},
            **{"device": "cpu", "num_pictures": 0},
        },
        "decoding": DECODING,
    }
    (output / "child.yaml").write_text(json.dumps(tree), encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    common.run_mt(output, "train", "--config", "child.yaml", "--fresh")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    folder = f"back-{seed}"
    if not (output / folder).exists():
        common.run_mt(output, "export", "--run", f"runs/{name}", "--format", "huggingface", "--output", folder)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def translated_by_mt(output, run):
    """Greedy translations of the development set by a run."""
    options = ("--input", "dev.es", "--output", "out.txt", "--to", TARGET, "--precision", "fp32")
    values = common.settings({f"decoding.{key}": value for key, value in DECODING.items()})
    common.run_mt(output, "translate", "--run", run, *options, *values)
    return common.read_lines(output / "out.txt")


def main():
    """Make the parent, fine-tune it with both, and print the means of the seeds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--parent-steps", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    data, output, folder = options.data.resolve(), options.output.resolve(), options.output.resolve() / "published"
    if not folder.exists():
        make_folder(data, folder)
        train_parent(data, folder, options.parent_steps)
    pairs = pairs_of(data, "aym", "train")
    both = [(pair, row) for pair, row in zip(pairs, encoded(folder, pairs, TARGET), strict=True) if is_short(row)]
    pairs, rows = [pair for pair, _ in both], [row for _, row in both]
    dev = pairs_of(data, "aym", "dev")[:200]
    sources, references = [pair[0] for pair in dev], [[pair[1] for pair in dev]]
    write_text(output, "train", pairs)
    write_text(output, "dev", dev)
    batch_tokens, trained = tokens_for(rows), output / "trainer"
    results = {}

    def add(name, model_folder, hypotheses, seconds=0.0):
        loss, chrf = loss_of(model_folder, dev), CHRF().corpus_score(hypotheses, references).score
        results.setdefault(name, []).append((loss, chrf, seconds))
        common.print_row(name, f"{loss:.3f}", f"{chrf:.2f}", f"{seconds:.0f}")

    if not (output / "runs" / "parent").exists():
        languages = ",".join(dict.fromkeys([SOURCE, TARGET, *LANGUAGES.values()]))
        common.run_mt(output, "import", folder, "--languages", languages, "--output", "runs/parent")
    common.print_titles("", "loss", "chrF", "seconds of the processor")
    add("before, transformers", folder, translations(folder, sources))
    for seed in range(1, options.seeds + 1):
        seconds = fine_tune_with_mt(output, options, seed, batch_tokens)
        add("mt", output / f"back-{seed}", translated_by_mt(output, f"runs/child-{seed}"), seconds)
        for name, tokens in (("Seq2SeqTrainer, batches of mt", batch_tokens), ("Seq2SeqTrainer, random batches", None)):
            seconds = fine_tune_with_trainer(rows, folder, trained, options, seed, tokens)
            add(name, trained, translations(trained, sources), seconds)
    print(f"\n{len(rows):,} pairs; {batch_tokens:,} tokens an update of mt; means and ranges:\n")
    common.print_titles("", "loss", "chrF", "seconds of the processor")
    for name, measured in results.items():
        losses, scores, seconds = zip(*measured, strict=True)
        ranges = f"{min(losses):.3f}-{max(losses):.3f}", f"{min(scores):.1f}-{max(scores):.1f}"
        means = f"{statistics.mean(losses):.3f} ({ranges[0]})", f"{statistics.mean(scores):.1f} ({ranges[1]})"
        common.print_row(name, *means, f"{statistics.mean(seconds):.0f}")


if __name__ == "__main__":
    main()
