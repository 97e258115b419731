import json

import pytest
import torch
from m2m100_files import NLLB_LANGUAGES, transformers, write_m2m100, write_nllb
from marian_files import LINES

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import load_config
from mt_cli.decoding.engine import Sentence, TransformerEngine
from mt_cli.features.exchange.m2m100 import M2M100Config
from mt_cli.features.exchange.names import SHARED_TABLE, transformers_name
from mt_cli.model.transformer import outline
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID
from mt_cli.translation.translator import Translator

TEXTS = LINES[::9][:12] + LINES[-6:-1]
LAYOUTS = {"m2m100": (write_m2m100, "de", "ru"), "nllb": (write_nllb, "eng_Latn", "ayr_Latn")}
BEAMS = {"beam_size": 4, "length_penalty": 0.0, "max_length_ratio": 1.0, "max_length": 20, "unk": "keep"}


@pytest.fixture(params=LAYOUTS)
def published(request, one_thread, tmp_path):
    """A published model: (folder, model, tokenizer, source language, target language)."""
    write, source, target = LAYOUTS[request.param]
    folder = tmp_path / request.param
    folder.mkdir()
    return folder, *write(folder), source, target


def languages(source, target):
    return "--source-language", source, "--target-language", target


def id_of(tokenizer, language):
    has_codes = hasattr(tokenizer, "get_lang_id")
    return tokenizer.get_lang_id(language) if has_codes else tokenizer.convert_tokens_to_ids(language)


def in_theirs(run, tokenizer):
    """For each id of a run, the id in the published model."""
    entries = run.tokenizers[0].tokens(range(run.tokenizers[0].vocab_size))[4:]
    theirs = [1, 3, 0, 2]
    for entry in entries:
        name = entry.removeprefix("\ue000")
        if name.startswith("[unused"):
            theirs.append(int(name[8:-1]))
        elif name == "[mask]":
            theirs.append(tokenizer.convert_tokens_to_ids("<mask>"))
        elif name != entry and name.startswith("<"):
            theirs.append(id_of(tokenizer, name[1:-1]))
        else:
            theirs.append(tokenizer.convert_tokens_to_ids(name))
    return theirs


def test_an_imported_model_gives_the_ids_and_logits_of_the_original(published, run_of):
    folder, original, tokenizer, source, target = published
    run = run_of(folder, "parent", *languages(source, target))
    assert run.config.corpus.languages == (source, target)
    theirs = in_theirs(run, tokenizer)
    assert sorted(theirs) == list(range(original.config.vocab_size))
    tokenizer.src_lang = source
    tag, back = f"<{source}>{target}>", f"<{target}>{source}>"
    assert run.config.corpus.tags == (tag, back) and run.config.corpus.tagging.default == tag
    for line in TEXTS:
        text = " ".join(line.split())
        (ids,), ((first,),) = run.tokenizers[0].encode([f"{tag} {text}"]), run.tokenizers[0].first_target_ids([tag])
        assert [*(theirs[index] for index in ids), 2] == tokenizer(text)["input_ids"], text
        assert theirs[first] == id_of(tokenizer, target)
        prefix = [SOS_ID, first, *ids[1:8]]
        decoder = torch.tensor([[2, *(theirs[index] for index in prefix[1:])]])
        with torch.inference_mode():
            expected = original(torch.tensor([tokenizer(text)["input_ids"]]), decoder_input_ids=decoder).logits
            logits = run.model.eval()(torch.tensor([[*ids, EOS_ID]]), torch.tensor([prefix]))
        torch.testing.assert_close(logits, expected[..., theirs], atol=1e-5, rtol=1e-5)


def generated(original, tokenizer, texts, source, target, num_beams):
    """Ids that the published model generates, from its first token on, without its end."""
    tokenizer.src_lang = source
    results = []
    for text in texts:
        batch = tokenizer(" ".join(text.split()), return_tensors="pt")
        num_tokens = min(batch["input_ids"].shape[1] - 1 + 10, 20)
        output = original.generate(
            **batch,
            forced_bos_token_id=id_of(tokenizer, target),
            **dict(num_beams=num_beams, length_penalty=0.0, max_length=None, max_new_tokens=num_tokens + 1),
            **dict(do_sample=False, early_stopping=False, suppress_tokens=[0, 1]),
        )[0, 1:].tolist()
        results.append(output[: output.index(2)] if 2 in output else output[:num_tokens])
    return results


@pytest.mark.parametrize("num_beams", [1, 4])
def test_translations_are_those_of_generate_with_a_forced_language(published, run_of, num_beams):
    folder, original, tokenizer, source, target = published
    run = run_of(folder, "parent", *languages(source, target))
    theirs, tag = in_theirs(run, tokenizer), f"<{source}>{target}>"
    texts = [f"{tag} {' '.join(text.split())}" for text in TEXTS]
    decoding = run.config.decoding.model_copy(update=BEAMS | {"beam_size": num_beams})
    sources, prefixes = run.tokenizers[0].encode(texts), run.tokenizers[0].first_target_ids(texts)
    hypotheses = TransformerEngine(run.model).search([*map(Sentence, sources, prefixes)], decoding)
    ours = [[theirs[index] for index in best.ids] for (best, *_) in hypotheses]
    expected = generated(original, tokenizer, TEXTS, source, target, num_beams)
    # At the maximum length, `generate` ends translations without the probability of the end.
    ended = [pair for pair in zip(ours, expected, strict=True) if num_beams == 1 or max(map(len, pair)) < 17]
    assert len(ended) > 4
    assert [one for one, _ in ended] == [two for _, two in ended]


def equal_weights(one, two, rows=None):
    """Names of the weights that differ between two models; the first may have only some rows of the embeddings."""
    weights = two.state_dict()
    return [
        name
        for name, weight in one.state_dict().items()
        if not torch.equal(
            weight, weights[name][rows] if rows and ("table" in name or "projection" in name) else weights[name]
        )
    ]


def test_exports_to_transformers_and_ctranslate2_translate_as_the_run(published, mt, run_of, export, tmp_path):
    folder, *_, source, target = published
    run = run_of(folder, "parent", *languages(source, target))
    for kind, back in (("huggingface", "back"), ("bundle", "bundle")):
        assert "cc-by-nc-4.0" in export("runs/parent", kind, back)
        options = languages(source, target) if (kind, folder.name) == ("huggingface", "m2m100") else ()
        again = run_of(tmp_path / back, f"again-{kind}", *options)
        assert [one.to_json() for one in again.tokenizers] == [one.to_json() for one in run.tokenizers]
        assert not equal_weights(run.model, again.model)
        assert again.config.corpus.tagging == run.config.corpus.tagging
        assert [parent.license for parent in again.state.parents] == ["cc-by-nc-4.0"]
    card = (tmp_path / "back/README.md").read_text(encoding="utf-8")
    assert "license: cc-by-nc-4.0" in card and "forced_bos_token_id" in card
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    source_name, target_name = (name if "_" in name else f"__{name}__" for name in (source, target))
    for line in TEXTS[:4]:
        if hasattr(theirs, "src_lang"):
            theirs.src_lang = source_name
        text = line if hasattr(theirs, "src_lang") else f"{source_name} {line}"
        batch = theirs(text, return_tensors="pt")
        output = model.generate(
            input_ids=batch["input_ids"],
            forced_bos_token_id=theirs.convert_tokens_to_ids(target_name),
            **dict(num_beams=1, max_length=None, max_new_tokens=12),
        )
        decoding = run.config.decoding.model_copy(update={"beam_size": 1, "max_length": 12, "unk": "keep"})
        ids = run.tokenizers[0].encode([f"<{source}>{target}> {line}"])
        ((best,),) = TransformerEngine(run.model).search([Sentence(*ids, [output[0, 1].item()])], decoding)
        assert best.ids[:11] == [index for index in output[0, 1:].tolist() if index != 2][:11]


@pytest.mark.parametrize("quantization", ["float32", "int8"])
def test_ctranslate2_translates_as_the_run(published, mt, run_of, tmp_path, quantization):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    folder, *_, source, target = published
    run_of(folder, "parent", *languages(source, target))
    status, _, err = mt("export", "--run", "runs/parent", "--output", "served", "--quantization", quantization)
    assert status == 0, err
    assert json.loads((tmp_path / "served/model.json").read_text())["licences"] == {folder.name: "cc-by-nc-4.0"}
    lines = "".join(f"{line}\n" for line in TEXTS)
    (tmp_path / "lines").write_text(lines, encoding="utf-8")
    options = ("--input", "lines", "--beam-size", "1", "--set", "decoding.unk=avoid", "--to", target)
    expected = mt("translate", "--run", "runs/parent", *options)[1].splitlines()
    status, out, err = mt("translate", "--engine", "ctranslate2", "--run", "served", *options)
    assert status == 0, err
    assert len(expected) == len(TEXTS)
    num_equal = sum(one == two for one, two in zip(expected, out.splitlines(), strict=True))
    assert num_equal == len(TEXTS) if quantization == "float32" else num_equal > len(TEXTS) // 3


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("write", [write_m2m100, write_nllb])
def test_kept_languages_and_pieces_translate_texts_of_their_files_as_before(
    one_thread, mt, run_of, tmp_path, write, kind
):
    if (write, kind) == (write_nllb, "unigram"):
        pytest.skip("NllbTokenizer reads only bpe")
    folder = tmp_path / "published"
    folder.mkdir()
    write(folder, kind)
    source, target = ("eng_Latn", "ayr_Latn") if write is write_nllb else ("en", "fi")
    kept_lines = [*LINES[::5], "The quick brown fox", "Ein Mann"]
    write_lines(tmp_path / "some", kept_lines)
    whole = run_of(folder, "whole", *languages(source, target))
    options = ("--languages", f"{source},{target}", "--vocabulary-from", "some", "--vocabulary-from", "some")
    status, _, err = mt("import", folder, "--output", "runs/part", *options)
    assert status == 0, err
    part = TrainedRun.load(tmp_path / "runs/part")
    before, after = (run.tokenizers[0] for run in (whole, part))
    assert f"{after.vocab_size:,} of" in err and "parameters fewer" in err
    assert after.vocab_size < before.vocab_size
    assert after.languages == (source, target)
    assert part.config.corpus.tags == (f"<{source}>{target}>", f"<{target}>{source}>")
    tagged = [f"<{source}>{target}> {line}" for line in kept_lines]
    assert [after.pieces(line) for line in tagged] == [before.pieces(line) for line in tagged]
    old = {entry: index for index, entry in enumerate(before.tokens(range(before.vocab_size)))}
    rows = [old[entry] for entry in after.tokens(range(after.vocab_size))]
    assert not equal_weights(part.model, whole.model, rows)
    with torch.inference_mode():
        for line in tagged:
            logits = [
                run.model.eval()(
                    torch.tensor([[*run.tokenizers[0].encode([line])[0], EOS_ID]]),
                    torch.tensor([[SOS_ID, *run.tokenizers[0].first_target_ids([line])[0]]]),
                )
                for run in (whole, part)
            ]
            torch.testing.assert_close(logits[1], logits[0][..., rows])
    status, _, err = mt("import", folder, "--output", "runs/languages", "--languages", f"{source},{target}")
    assert status == 0, err
    alone = TrainedRun.load(tmp_path / "runs/languages").tokenizers[0]
    assert before.vocab_size > alone.vocab_size > after.vocab_size
    every = [f"<{source}>{target}> {' '.join(line.split())}" for line in LINES]
    assert [alone.pieces(line) for line in every] == [before.pieces(line) for line in every]


def test_a_new_language_begins_as_the_near_one_that_is_named(one_thread, run_of, tmp_path):
    folder = tmp_path / "nllb"
    folder.mkdir()
    write_nllb(folder)
    run = run_of(folder, "parent", "--languages", "spa_Latn,ayr_Latn", "--new-language", "grn_Latn=quy_Latn")
    tokenizer, table = run.tokenizers[0], run.model.source_embedding.table.weight
    assert tokenizer.languages == ("spa_Latn", "ayr_Latn", "grn_Latn")
    assert len(run.config.corpus.tags) == 6 and run.config.corpus.languages == ("spa_Latn", "ayr_Latn")
    whole = run_of(folder, "whole", *languages("spa_Latn", "quy_Latn"))
    (new,) = tokenizer.first_target_ids(["<spa_Latn>grn_Latn>"])[0]
    (near,) = whole.tokenizers[0].first_target_ids(["<spa_Latn>quy_Latn>"])[0]
    assert torch.equal(table[new], whole.model.source_embedding.table.weight[near])


def child_config(tmp_path, **changes):
    """Write the config of a run that begins with an imported one."""
    tree = {
        "name": "child",
        "init": {"run": "runs/parent"},
        "corpus": {
            **{"source": "spa_Latn", "target": "ayr_Latn", "tag": "direction", "max_tokens": 60},
            "train": {"files": ["train.a", "train.b"]},
            "valid": {"files": ["valid.a", "valid.b"]},
            "filters": {"duplicates": False, "overlap": False, "min_script_share": None},
        },
        "training": {
            **{"max_steps": 4, "validate_every_steps": 2, "batch_tokens": 200, "warmup_steps": 1, "num_pictures": 1},
            **{"learning_rate": 1e-3, "log_every_steps": 1, "device": "cpu", "precision": "fp32"},
        },
        "decoding": {"beam_size": 1, "max_length": 12},
        "evaluation": {"num_resamples": 10},
    }
    for key, options in changes.items():
        tree[key] = tree.get(key, {}) | options if isinstance(options, dict) else options
    (tmp_path / f"{tree['name']}.yaml").write_text(json.dumps(tree))
    return f"{tree['name']}.yaml"


@pytest.fixture
def nllb_parent(one_thread, run_of, tmp_path):
    """An imported run of three languages, and text in the folder."""
    folder = tmp_path / "nllb"
    folder.mkdir()
    write_nllb(folder)
    write_lines(tmp_path / "train.a", LINES[:40])
    write_lines(tmp_path / "train.b", LINES[40:80])
    write_lines(tmp_path / "valid.a", LINES[80:84])
    write_lines(tmp_path / "valid.b", LINES[90:94])
    return run_of(folder, "parent", "--languages", "spa_Latn,ayr_Latn,quy_Latn")


def test_the_preset_of_an_imported_parent_has_the_usual_learning_rate(nllb_parent, mt, tmp_path):
    name = child_config(tmp_path, preset="auto", training={"max_steps": 1})
    tree = json.loads((tmp_path / name).read_text())
    for key in ("learning_rate", "warmup_steps"):
        del tree["training"][key]
    (tmp_path / name).write_text(json.dumps(tree))
    status, _, err = mt("train", "--config", name)
    assert status == 0, err
    assert "usual for published models" in err
    training = load_config(tmp_path / "runs/child/config.yaml").training
    assert (training.optimizer, training.learning_rate, training.schedule) == ("adamw", 1e-4, "linear")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"init": {"run": "runs/parent", "adapter_rank": 2}},
        {"init": {"run": "runs/parent", "freeze": ["embeddings", "encoder"]}},
        pytest.param({"training": {"precision": "bf16"}}, marks=pytest.mark.slow),
    ],
)
def test_an_imported_model_is_fine_tuned_in_both_directions(nllb_parent, mt, tmp_path, export, changes):
    name = child_config(tmp_path, corpus=json.loads('{"both_directions": true}'), **changes)
    status, _, err = mt("train", "--config", name)
    assert status == 0, err
    child = TrainedRun.load(tmp_path / "runs/child")
    assert child.config.corpus.tags == ("<spa_Latn>ayr_Latn>", "<ayr_Latn>spa_Latn>")
    changed = equal_weights(child.model, nllb_parent.model)
    assert changed
    if "freeze" in changes.get("init", {}):
        assert not [name for name in changed if "encoder" in name or "embedding" in name]
    translator = Translator.load(tmp_path / "runs/child", device="cpu")
    tags = map(translator.target_tag, ("ayr_Latn", "spa_Latn"))
    there, back = (translator.translate_fully(["one two three"], tag=tag, with_details=True)[0] for tag in tags)
    assert there.details.source_tokens[0] == "<spa_Latn>" and back.details.source_tokens[0] == "<ayr_Latn>"
    assert len(there.details.tokens) == len(there.details.token_scores)
    (score,) = translator.score(["one two three"], [there.text], tag="<spa_Latn>ayr_Latn>")
    assert score.token_scores == pytest.approx(there.details.token_scores, abs=1e-4)
    assert "cc-by-nc-4.0" in export("runs/child", "huggingface", "back")
    card = (tmp_path / "back/README.md").read_text(encoding="utf-8")
    assert "license: cc-by-nc-4.0" in card and "its weights" not in card
    assert json.loads((tmp_path / "runs/child/report.json").read_text())["parents"][0]["parents"][0]["license"]


def test_the_training_loss_of_an_imported_model_is_that_of_transformers(nllb_parent, tmp_path, mt):
    name = child_config(tmp_path, training={"max_steps": 1, "validate_every_steps": 1, "learning_rate": 1e-9})
    status, _, err = mt("train", "--config", name)
    assert status == 0, err
    rows = [json.loads(line) for line in (tmp_path / "runs/child/metrics.jsonl").read_text().splitlines()]
    loss = next(row["valid/loss"] for row in rows if "valid/loss" in row)
    status, _, err = mt("export", "--run", "runs/parent", "--format", "huggingface", "--output", "back")
    assert status == 0, err
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "back", src_lang="spa_Latn", tgt_lang="ayr_Latn")
    total = number = 0
    for source, target in zip(LINES[80:84], LINES[90:94], strict=True):
        batch = tokenizer(source, text_target=target, return_tensors="pt")
        with torch.inference_mode():
            total += model(**batch).loss.item() * batch["labels"].numel()
        number += batch["labels"].numel()
    assert loss == pytest.approx(total / number, abs=1e-4)


def test_new_characters_get_pieces_and_the_export_has_them(nllb_parent, mt, tmp_path, export):
    chinese = ["一个男人在睡觉。", "两只狗在看一个男人。", "一个女人在看书。", "狗在睡觉。"] * 10
    write_lines(tmp_path / "train.b", chinese)
    init = {"run": "runs/parent", "vocabulary": "extend"}
    status, _, err = mt("train", "--config", child_config(tmp_path, init=init))
    assert status == 0, err
    child = TrainedRun.load(tmp_path / "runs/child")
    before, after = nllb_parent.tokenizers[1], child.tokenizers[1]
    assert any(1 in ids for ids in before.encode(chinese)) and not any(1 in ids for ids in after.encode(chinese))
    assert after.languages == before.languages and after.decode(after.encode(chinese)) == chinese
    export("runs/child", "huggingface", "back")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "back", src_lang="spa_Latn")
    assert [theirs.tokenize(line) for line in chinese[:4]] == [after.pieces(line) for line in chinese[:4]]


def test_a_run_of_an_imported_model_is_replayed_in_the_next(nllb_parent, mt, tmp_path):
    status, _, err = mt("train", "--config", child_config(tmp_path))
    assert status == 0, err
    corpus = {"source": "spa_Latn", "target": "quy_Latn", "train": {"files": ["train.b", "train.a"], "name": "quy"}}
    init = {"run": "runs/child", "replay": 0.5}
    status, _, err = mt("train", "--config", child_config(tmp_path, name="next", corpus=corpus, init=init))
    assert status == 0, err
    grandchild = TrainedRun.load(tmp_path / "runs/next")
    assert grandchild.config.corpus.tags == ("<spa_Latn>quy_Latn>", "<spa_Latn>ayr_Latn>")
    assert [parent.run for parent in grandchild.state.parents] == ["child"]


def test_the_text_of_an_imported_model_cannot_be_replayed(nllb_parent, mt, tmp_path):
    init = {"run": "runs/parent", "replay": 0.3}
    status, _, err = mt("train", "--config", child_config(tmp_path, init=init))
    assert status == 2 and "init.replay: parent was imported, so its pairs are not known" in err, err
    assert err.count("mt: ") == 1 and not (tmp_path / "runs/child").exists()


def test_a_comma_too_many_names_no_language(one_thread, run_of, tmp_path):
    folder = tmp_path / "nllb"
    folder.mkdir()
    write_nllb(folder)
    run = run_of(folder, "parent", "--languages", " eng_Latn,, fao_Latn,")
    assert run.tokenizers[0].languages == ("eng_Latn", "fao_Latn")


def test_a_config_without_directions_of_its_parent_is_refused(nllb_parent, mt, tmp_path):
    for corpus, expected in (
        ({"tag": None}, "corpus.tag: direction"),
        ({"tag": "to_target"}, "has no entry for <2ayr_Latn>; set corpus.tag: direction"),
        ({"target": "grn_Latn"}, "has no entry for grn_Latn"),
    ):
        status, _, err = mt("train", "--config", child_config(tmp_path, corpus=corpus))
        assert (status, expected in err) == (2, True), err
        assert not (tmp_path / "runs/child").exists()


def test_either_file_of_the_tokenizer_of_nllb_is_enough(one_thread, run_of, tmp_path):
    folder = tmp_path / "nllb"
    folder.mkdir()
    _, tokenizer = write_nllb(folder)
    whole = run_of(folder, "whole", *languages("eng_Latn", "ayr_Latn"))
    pieces = (folder / "sentencepiece.bpe.model").read_bytes()
    (folder / "sentencepiece.bpe.model").unlink()
    fast = run_of(folder, "fast", *languages("eng_Latn", "ayr_Latn"))
    (folder / "sentencepiece.bpe.model").write_bytes(pieces)
    (folder / "tokenizer.json").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    names = [*NLLB_LANGUAGES, "<mask>"]  # As older versions of transformers write them.
    added = {tokenizer.convert_tokens_to_ids(name): {"content": name, "special": True} for name in names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"added_tokens_decoder": added}))
    pieces_alone = run_of(folder, "pieces", *languages("eng_Latn", "ayr_Latn"))
    for run in (fast, pieces_alone):
        assert not equal_weights(whole.model, run.model)
        tagged = [f"<eng_Latn>ayr_Latn> {' '.join(line.split())}" for line in LINES]
        assert [run.tokenizers[0].encode([line]) for line in tagged] == [
            whole.tokenizers[0].encode([line]) for line in tagged
        ]


def test_merges_in_any_order_of_their_pieces_split_text_as_transformers_does(one_thread, run_of, tmp_path):
    folder = tmp_path / "nllb"
    folder.mkdir()
    write_nllb(folder)
    (folder / "sentencepiece.bpe.model").unlink()
    tree = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    before = transformers.AutoTokenizer.from_pretrained(folder)
    tree["model"]["merges"].reverse()
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = run_of(folder, "parent", *languages("eng_Latn", "ayr_Latn")).tokenizers[0]
    for line in LINES:
        expected = theirs.tokenize(" ".join(line.split()))
        assert ours.pieces(line) == ["[UNK]" if piece == "<unk>" else piece for piece in expected]
    assert any(before.tokenize(line) != theirs.tokenize(line) for line in LINES)


OLDER = {  # Parts of `tokenizer.json` as these versions of `transformers` write them.
    "4.33": (
        [{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}],
        {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
    ),
    "4.57": (
        [
            {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
        ],
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    ),
}


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("has_pieces", [True, False])
def test_tokenizer_files_of_older_versions_split_text_alike(one_thread, run_of, tmp_path, version, has_pieces):
    folder = tmp_path / "nllb"
    folder.mkdir()
    write_nllb(folder)
    whole = run_of(folder, "whole", *languages("eng_Latn", "ayr_Latn")).tokenizers[0]
    tree = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    steps, tree["pre_tokenizer"] = OLDER[version]
    charsmap = tree["normalizer"]["normalizers"][0]
    tree["normalizer"]["normalizers"] = [charsmap, *steps]
    if version == "4.33":
        tree["model"]["merges"] = [" ".join(merge) for merge in tree["model"]["merges"]]
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    if not has_pieces:
        (folder / "sentencepiece.bpe.model").unlink()
    older = run_of(folder, "older", *languages("eng_Latn", "ayr_Latn")).tokenizers[0]
    texts = [*LINES, " one", "  one  two ", ""]
    assert [older.pieces(line) for line in texts] == [whole.pieces(line) for line in texts]


def files_of_version(folder, tokenizer, layout):
    """Write the languages as a version of `transformers` does that writes no `tokenizer.json`."""
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    names, config = [*NLLB_LANGUAGES], {"tokenizer_class": "NllbTokenizer"}
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in ("<mask>", *names)}
    extra = {"additional_special_tokens": names}
    if layout == "before 4.34":
        (folder / "special_tokens_map.json").write_text(json.dumps(extra))
    elif layout == "added_tokens.json":
        (folder / "added_tokens.json").write_text(json.dumps(ids))
        (folder / "special_tokens_map.json").write_text(json.dumps(extra))
        config |= extra | {"extra_special_tokens": {}}
    elif layout == "added_tokens_decoder":
        config |= {"added_tokens_decoder": {index: {"content": name} for name, index in ids.items()}}
    else:
        config |= {"extra_special_tokens": names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("layout", ["before 4.34", "added_tokens.json", "added_tokens_decoder", "extra_special_tokens"])
def test_languages_of_nllb_are_read_from_the_files_of_each_version(one_thread, run_of, tmp_path, layout):
    folder = tmp_path / "nllb"
    folder.mkdir()
    _, tokenizer = write_nllb(folder)
    table = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).get_input_embeddings().weight
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in NLLB_LANGUAGES}
    if layout == "before 4.34":  # There, the mask follows the languages.
        ids = {name: index - 1 for name, index in ids.items()}
    files_of_version(folder, tokenizer, layout)
    run = run_of(folder, "parent", "--languages", ",".join(NLLB_LANGUAGES))
    for name in NLLB_LANGUAGES:
        if name != "eng_Latn":
            ((first,),) = run.tokenizers[0].first_target_ids([f"<eng_Latn>{name}>"])
            assert torch.equal(run.model.source_embedding.table.weight[first], table[ids[name]])
    assert set(run.tokenizers[0].languages) == set(NLLB_LANGUAGES)


def test_a_language_that_was_added_to_m2m100_is_one_of_its_languages(one_thread, run_of, tmp_path):
    folder = tmp_path / "m2m100"
    folder.mkdir()
    model, tokenizer = write_m2m100(folder)
    index = tokenizer.get_lang_id("zu") + 3
    (folder / "added_tokens.json").write_text(json.dumps({"__quy__": index}))
    names = [f"__{code}__" for code in ("af", "am", "zu")]  # Listed before version 4.34, without ids.
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": names}))
    run = run_of(folder, "parent", "--languages", "es,quy")
    ((first,),) = run.tokenizers[0].first_target_ids(["<es>quy>"])
    table = model.get_input_embeddings().weight
    assert torch.equal(run.model.source_embedding.table.weight[first], table[index])
    whole = run_of(folder, "whole", *languages("es", "af"))
    ((first,),) = whole.tokenizers[0].first_target_ids(["<es>af>"])
    assert torch.equal(whole.model.source_embedding.table.weight[first], table[tokenizer.get_lang_id("af")])


def test_updates_of_an_imported_model_are_those_of_transformers(nllb_parent, mt, tmp_path, export):
    training = {
        **{"max_steps": 3, "validate_every_steps": 3, "batch_tokens": 100_000, "warmup_steps": 0},
        **{"schedule": "constant", "label_smoothing": 0.0, "adam_epsilon": 1e-3, "weight_decay": 0.01},
    }
    name = child_config(tmp_path, training=training, model={"dropout": 0.0, "attention_dropout": 0.0})
    status, _, err = mt("train", "--config", name)
    assert status == 0, err
    export("runs/parent", "huggingface", "parent")
    export("runs/child", "huggingface", "child")
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        tmp_path / "parent", src_lang="spa_Latn", tgt_lang="ayr_Latn"
    )
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "parent", dropout=0.0, attention_dropout=0.0)
    model.train()
    model.config.encoder_layerdrop = model.config.decoder_layerdrop = 0.0
    model.model.encoder.layerdrop = model.model.decoder.layerdrop = 0.0
    collate = transformers.DataCollatorForSeq2Seq(tokenizer, model)
    rows = tokenizer(LINES[:40], text_target=LINES[40:80])
    batch = collate([{key: rows[key][number] for key in ("input_ids", "labels")} for number in range(40)])
    matrices = [weight for name, weight in model.named_parameters() if weight.dim() == 2 and "shared" not in name]
    others = [weight for name, weight in model.named_parameters() if weight.dim() == 1 or "shared" in name]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), eps=1e-3)
    for _ in range(3):
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    ours = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "child").state_dict()
    parent = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "parent").state_dict()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(ours[name], weight, atol=2e-6, rtol=1e-5, msg=name)
    assert any((ours[name] - weight).abs().max() > 1e-4 for name, weight in parent.items())


def test_a_model_of_full_size_has_the_weights_of_the_class_of_transformers():
    config = transformers.M2M100Config(vocab_size=256_206)
    with torch.device("meta"):
        theirs = dict(transformers.M2M100ForConditionalGeneration(config).named_parameters())
    tree = config.to_dict() | {"model_type": "m2m_100"}
    ours = outline(M2M100Config.model_validate(tree).our_options(), 256_206, 256_206)
    shapes = {
        SHARED_TABLE if "table" in name else transformers_name(name): weight.shape
        for name, weight in ours.named_parameters()
    }
    assert shapes == {name: weight.shape for name, weight in theirs.items()}
    assert sum(weight.numel() for weight in ours.parameters()) == 615_073_792


def test_the_peak_of_fine_tuning_a_model_of_full_size_is_below_24_gigabytes(monkeypatch, root):
    monkeypatch.syspath_prepend(root / "tests/benchmarks")
    from m2m100_memory import peak_bytes

    number, fixed, peak = peak_bytes(256_206, 6_000, {})
    assert number == 615_073_792
    assert 14 * number < fixed < peak < 22e9
