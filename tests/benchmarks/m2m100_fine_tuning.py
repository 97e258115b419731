"""An M2M100 of four languages, trained by `transformers`, then fine-tuned to one: by `mt` and by Seq2SeqTrainer.

    python tests/benchmarks/m2m100_fine_tuning.py --data ../shared/data/americas --output proof

Needs `transformers`, `sentencepiece` and `accelerate`. A small model (NLLB layout) learns Spanish to Guarani, Shipibo
and some Aymara in a plain loop. Then both train it on all pairs of Aymara, with as many updates of about as many pairs,
the same AdamW and schedule, in fp32, without label smoothing, with which Seq2SeqTrainer fails for M2M100. Printed are
chrF of greedy translations of the development set, and the time of the processor, which a busy machine changes less
than the time of a clock; that of `mt` includes its start, reading and two validations.
"""

import argparse
import json
import math
import random
import resource
import time
from pathlib import Path

import common
import sentencepiece
import torch
import transformers
from sacrebleu.metrics import CHRF
from safetensors.torch import load_file

LANGUAGES = {"gn": "grn_Latn", "shp": "shp_Latn", "aym": "ayr_Latn"}
SOURCE, TARGET = "spa_Latn", "ayr_Latn"
SIZES = {
    **{"d_model": 128, "encoder_layers": 3, "decoder_layers": 3, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "attention_dropout": 0.0, "dropout": 0.1},
}
MAX_TOKENS = 80


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
    """Ids and labels of the pairs that are not too long."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, src_lang=SOURCE, tgt_lang=language)
    rows = tokenizer([source for source, _ in pairs], text_target=[target for _, target in pairs])
    both = zip(rows["input_ids"], rows["labels"], strict=True)
    return [{"input_ids": ids, "labels": labels} for ids, labels in both if max(len(ids), len(labels)) <= MAX_TOKENS]


def train_parent(data, folder, steps):
    """Train in a plain loop: batches of 32 pairs of similar length, AdamW, a linear schedule."""
    rows = [
        row
        for language, code in LANGUAGES.items()
        for row in encoded(folder, pairs_of(data, language, "train")[: 2000 if code == TARGET else None], code)
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


def fine_tune_with_trainer(data, folder, output, steps, rate):
    """Fine-tune with Seq2SeqTrainer; return the seconds of the processor, and the tokens of an update."""
    rows = encoded(folder, pairs_of(data, "aym", "train"), TARGET)
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, src_lang=SOURCE, tgt_lang=TARGET)
    options = transformers.Seq2SeqTrainingArguments(
        output_dir=str(output / "state"),
        **{"max_steps": steps, "per_device_train_batch_size": 32, "learning_rate": rate, "lr_scheduler_type": "linear"},
        **{"warmup_steps": steps // 10, "weight_decay": 0.0, "max_grad_norm": 1.0},
        **{"save_strategy": "no", "report_to": [], "use_cpu": True, "seed": 1, "disable_tqdm": True},
        **{"adam_beta2": 0.98, "adam_epsilon": 1e-9},
    )
    collate = transformers.DataCollatorForSeq2Seq(tokenizer, model)
    trainer = transformers.Seq2SeqTrainer(model, options, collate, rows, processing_class=tokenizer)
    started = time.process_time()
    trainer.train()
    seconds = time.process_time() - started
    trainer.save_model(str(output))
    longest = sum(max(len(row["input_ids"]), len(row["labels"])) for row in rows) / len(rows)
    return seconds, math.ceil(32 * longest)


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
            **{"num_beams": 1, "max_length": None, "max_new_tokens": 60},
        )
        results += tokenizer.batch_decode(output, skip_special_tokens=True)
    return results


def fine_tune_with_mt(data, folder, output, steps, rate, batch_tokens):
    """Import, fine-tune and export with `mt`; return the seconds of the processor in training."""
    common.run_mt(output, "import", folder, "--languages", f"{SOURCE},{TARGET}", "--output", "runs/parent")
    for split in ("train", "dev"):
        for side, number in (("es", 0), ("aym", 1)):
            pairs = pairs_of(data, "aym", split)[: 200 if split == "dev" else None]
            text = "".join(f"{pair[number]}\n" for pair in pairs)
            (output / f"{split}.{side}").write_text(text, encoding="utf-8")
    tree = {
        "name": "child",
        "init": {"run": "runs/parent"},
        "corpus": {
            **{"source": SOURCE, "target": TARGET, "tag": "direction", "max_tokens": MAX_TOKENS},
            **{"train": {"files": ["train.es", "train.aym"]}, "valid": {"files": ["dev.es", "dev.aym"]}},
        },
        "model": {"dropout": 0.1},
        "training": {
            **{"max_steps": steps, "validate_every_steps": steps, "batch_tokens": batch_tokens, "precision": "fp32"},
            **{"learning_rate": rate, "schedule": "linear", "warmup_steps": steps // 10, "label_smoothing": 0.0},
            **{"weight_decay": 0.0, "max_grad_norm": 1.0, "device": "cpu", "num_pictures": 0},
        },
        "decoding": {"beam_size": 1, "max_length": 60},
    }
    (output / "child.yaml").write_text(json.dumps(tree), encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    common.run_mt(output, "train", "--config", "child.yaml")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    common.run_mt(output, "export", "--run", "runs/child", "--format", "huggingface", "--output", "back")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def translated_by_mt(output, run):
    """Greedy translations of the development set by a run."""
    options = ("--beam-size", 1, "--set", "decoding.max_length=60", "--to", TARGET, "--precision", "fp32")
    common.run_mt(output, "translate", "--run", run, "--input", "dev.es", "--output", "out.txt", *options)
    return common.read_lines(output / "out.txt")


def main():
    """Make the parent, fine-tune it with both, and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--parent-steps", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rate", type=float, default=1e-3)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    data, output, folder = options.data.resolve(), options.output.resolve(), options.output.resolve() / "published"
    if not folder.exists():
        make_folder(data, folder)
        train_parent(data, folder, options.parent_steps)
    dev = pairs_of(data, "aym", "dev")[:200]
    sources, references = [source for source, _ in dev], [[target for _, target in dev]]
    chrf = CHRF()

    def report(name, hypotheses, seconds=None):
        speed = "" if seconds is None else f"{seconds:.0f}"
        print(f"| {name} | {chrf.corpus_score(hypotheses, references).score:.2f} | {speed} |", flush=True)

    print("| | chrF | seconds of the processor |\n|---|---|---|")
    report("parent, transformers", translations(folder, sources))
    seconds, batch_tokens = fine_tune_with_trainer(data, folder, output / "trainer", options.steps, options.rate)
    report("Seq2SeqTrainer", translations(output / "trainer", sources), seconds)
    seconds = fine_tune_with_mt(data, folder, output, options.steps, options.rate, batch_tokens)
    report("parent, mt", translated_by_mt(output, "runs/parent"))
    report("mt", translated_by_mt(output, "runs/child"), seconds)
    report("mt, exported to transformers", translations(output / "back", sources))
    weights = load_file(output / "back/model.safetensors")
    number = sum(weight.numel() for weight in weights.values())
    print(f"\n{number:,} parameters after the import; updates of {batch_tokens:,} tokens")


if __name__ == "__main__":
    main()
