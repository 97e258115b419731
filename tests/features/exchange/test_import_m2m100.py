"""M2M100 and NLLB as runs: whole, in part, fine-tuned and exported again, they do what `transformers` does."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from marian_files import LINES
from safetensors.torch import load_file

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.decoding.engine import Sentence, TransformerEngine
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID
from mt_cli.translation.translator import Translator

TEXTS = [" ".join(line.split()) for line in LINES[::9][:12] + LINES[-6:-1]]
DIRECTIONS = {"m2m100": ("de", "ru"), "nllb": ("eng_Latn", "ayr_Latn")}
CHINESE = ["一个男人在睡觉。", "两只狗在看一个男人。", "一个女人在看书。", "狗在睡觉。"] * 10
SPM = "sentencepiece.bpe.model"
both_kinds = pytest.mark.parametrize("model", DIRECTIONS, indirect=True)
one_kind = pytest.mark.parametrize("model", ["nllb", pytest.param("m2m100", marks=pytest.mark.slow)], indirect=True)


@pytest.fixture
def model(request, transformers):
    """A published model by `transformers`, its files, and its run."""
    folder, path = (request.getfixturevalue(name) for name in (f"{request.param}_folder", f"imported_{request.param}"))
    if request.param == "m2m100":
        tokenizer = transformers.M2M100Tokenizer(folder / "vocab.json", folder / SPM)
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    source, target = DIRECTIONS[request.param]
    tokenizer.src_lang = source
    return SimpleNamespace(
        **dict(folder=folder, path=path, run=TrainedRun.load(path), tokenizer=tokenizer, source=source, target=target),
        original=transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval(),
        tag=f"<{source}>{target}>",
    )


def languages(source, target):
    return "--source-language", source, "--target-language", target


def id_of(tokenizer, language):
    has_codes = hasattr(tokenizer, "get_lang_id")
    return tokenizer.get_lang_id(language) if has_codes else tokenizer.convert_tokens_to_ids(language)


def in_theirs(run, tokenizer):
    """For each id of a run, the id in the published model."""
    theirs = [1, 3, 0, 2]
    for entry in run.tokenizers[0].tokens(range(4, run.tokenizers[0].vocab_size)):
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


def logits_of(run, text, num_tokens=0):
    """Logits after the language of the target and some tokens of the source, and the ids of both sides."""
    (ids,), ((first,),) = run.tokenizers[0].encode([text]), run.tokenizers[0].first_target_ids([text])
    src_ids, tgt_ids = [*ids, EOS_ID], [SOS_ID, first, *ids[1 : 1 + num_tokens]]
    with torch.inference_mode():
        return run.model.eval()(torch.tensor([src_ids]), torch.tensor([tgt_ids])), src_ids, tgt_ids


@both_kinds
def test_an_imported_model_gives_the_ids_and_logits_of_the_original(model):
    run, tokenizer, tag = model.run, model.tokenizer, model.tag
    assert run.config.corpus.languages == (model.source, model.target)
    assert run.config.corpus.tags == (tag, f"<{model.target}>{model.source}>")
    assert run.config.corpus.tagging.default == tag
    theirs = in_theirs(run, tokenizer)
    assert sorted(theirs) == list(range(model.original.config.vocab_size))
    for text in TEXTS:
        logits, src_ids, tgt_ids = logits_of(run, f"{tag} {text}", 7)
        their_ids = tokenizer(text)["input_ids"]
        assert [theirs[index] for index in src_ids] == their_ids, text
        assert theirs[tgt_ids[1]] == id_of(tokenizer, model.target)
        decoder = torch.tensor([[2, *(theirs[index] for index in tgt_ids[1:])]])
        with torch.inference_mode():
            expected = model.original(torch.tensor([their_ids]), decoder_input_ids=decoder).logits
        torch.testing.assert_close(logits, expected[..., theirs], atol=1e-5, rtol=1e-5)


def different_weights(one, two, rows=None):
    """Names of the weights that differ between two models; the first may have only some rows of the embeddings."""
    weights = two.state_dict()
    return [
        name
        for name, weight in one.state_dict().items()
        if not torch.equal(
            weight, weights[name][rows] if rows and ("table" in name or "projection" in name) else weights[name]
        )
    ]


@one_kind
def test_exports_are_imported_as_the_same_run_with_its_licence(model, run_of, export, tmp_path):
    run, kind = model.run, "m2m100" if "m2m100" in model.folder.name else "nllb"
    for program, back in (("huggingface", "back"), ("bundle", "bundle")):
        assert "cc-by-nc-4.0" in export(model.path, program, back)
        options = languages(model.source, model.target) if (program, kind) == ("huggingface", "m2m100") else ()
        again = run_of(tmp_path / back, f"again-{program}", *options)
        assert [one.to_json() for one in again.tokenizers] == [one.to_json() for one in run.tokenizers]
        assert not different_weights(run.model, again.model)
        assert again.config.corpus.tagging == run.config.corpus.tagging
        assert [parent.license for parent in again.state.parents] == ["cc-by-nc-4.0"]
    card = (tmp_path / "back/README.md").read_text(encoding="utf-8")
    assert "license: cc-by-nc-4.0" in card and "forced_bos_token_id" in card


@one_kind
def test_an_export_to_transformers_translates_as_the_run(model, export, tmp_path, transformers):
    export(model.path, "huggingface", "back")
    exported = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    source, target = (name if "_" in name else f"__{name}__" for name in (model.source, model.target))
    has_languages = hasattr(tokenizer, "src_lang")
    if has_languages:
        tokenizer.src_lang = source
    decoding = model.run.config.decoding.model_copy(update={"beam_size": 1, "max_length": 12, "unk": "keep"})
    for line in TEXTS[:4]:
        batch = tokenizer(line if has_languages else f"{source} {line}", return_tensors="pt")
        output = exported.generate(
            input_ids=batch["input_ids"],
            forced_bos_token_id=tokenizer.convert_tokens_to_ids(target),
            **dict(num_beams=1, max_length=None, max_new_tokens=12),
        )[0, 1:].tolist()
        ids = model.run.tokenizers[0].encode([f"{model.tag} {line}"])
        ((best,),) = TransformerEngine(model.run.model).search([Sentence(*ids, output[:1])], decoding)
        assert best.ids[:11] == [index for index in output if index != 2][:11]


@pytest.mark.slow
@both_kinds
def test_an_export_to_ctranslate2_translates_as_the_run(model, mt, export, tmp_path):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    export(model.path, "ctranslate2", "served")
    assert json.loads((tmp_path / "served/model.json").read_text())["licences"] == {model.folder.name: "cc-by-nc-4.0"}
    write_lines(tmp_path / "lines", TEXTS)
    options = ("--input", "lines", "--beam-size", "1", "--set", "decoding.unk=avoid", "--to", model.target)
    status, expected, err = mt("translate", "--run", model.path, *options)
    assert status == 0, err
    assert mt("translate", "--engine", "ctranslate2", "--run", "served", *options)[:2] == (0, expected)


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@both_kinds
def test_kept_languages_and_pieces_give_the_logits_of_the_whole(model, run_of, tmp_path):
    kept_lines = [*TEXTS[::2], "The quick brown fox", "Ein Mann"]
    write_lines(tmp_path / "some", kept_lines)
    options = ("--languages", f"{model.source},{model.target}")
    part = run_of(model.folder, "part", *options, "--vocabulary-from", "some", "--vocabulary-from", "some")
    before, after = (run.tokenizers[0] for run in (model.run, part))
    assert after.languages == (model.source, model.target)
    assert part.config.corpus.tags == (f"<{model.source}>{model.target}>", f"<{model.target}>{model.source}>")
    old_ids = {entry: index for index, entry in enumerate(before.tokens(range(before.vocab_size)))}
    rows = [old_ids[entry] for entry in after.tokens(range(after.vocab_size))]
    assert not different_weights(part.model, model.run.model, rows)
    for text in (f"{model.tag} {line}" for line in kept_lines):
        assert after.pieces(text) == before.pieces(text)
        torch.testing.assert_close(logits_of(part, text)[0], logits_of(model.run, text)[0][..., rows])
    alone = run_of(model.folder, "languages", *options).tokenizers[0]
    assert before.vocab_size > alone.vocab_size > after.vocab_size
    for text in (f"{model.tag} {line}" for line in TEXTS):
        assert alone.pieces(text) == before.pieces(text)


def test_a_new_language_begins_as_the_near_one(nllb_folder, imported_part_of_nllb, run_of):
    run = run_of(nllb_folder, "new", "--languages", " spa_Latn,, ayr_Latn,", "--new-language", "grn_Latn=quy_Latn")
    assert run.tokenizers[0].languages == ("spa_Latn", "ayr_Latn", "grn_Latn")
    assert len(run.config.corpus.tags) == 6 and run.config.corpus.languages == ("spa_Latn", "ayr_Latn")
    rows = []
    for one, tag in ((run, "<spa_Latn>grn_Latn>"), (TrainedRun.load(imported_part_of_nllb), "<spa_Latn>quy_Latn>")):
        ((index,),) = one.tokenizers[0].first_target_ids([tag])
        rows.append(one.model.source_embedding.table.weight[index])
    assert torch.equal(*rows)


@pytest.fixture
def child_config(imported_part_of_nllb, tmp_path):
    """A function that writes the config of a run that begins with an imported one, and the text for it."""
    write_lines(tmp_path / "train.a", LINES[:40])
    write_lines(tmp_path / "train.b", LINES[40:80])
    write_lines(tmp_path / "valid.a", LINES[80:84])
    write_lines(tmp_path / "valid.b", LINES[90:94])

    def write(**changes):
        tree = {
            "name": "child",
            "init": {"run": str(imported_part_of_nllb)},
            "corpus": {
                **{"source": "spa_Latn", "target": "ayr_Latn", "tag": "direction", "max_tokens": 60},
                "train": {"files": ["train.a", "train.b"]},
                "valid": {"files": ["valid.a", "valid.b"]},
                "filters": {"duplicates": False, "overlap": False, "min_script_share": None},
            },
            "training": {
                **{"max_steps": 2, "validate_every_steps": 2, "batch_tokens": 200, "warmup_steps": 1},
                **{"learning_rate": 1e-3, "log_every_steps": 1, "device": "cpu", "precision": "fp32"},
            },
            "decoding": {"beam_size": 1, "max_length": 12},
            "evaluation": {"num_resamples": 10},
        }
        for section, options in changes.items():
            tree[section] = tree.get(section, {}) | options
        (tmp_path / "child.yaml").write_text(json.dumps(tree))
        return "child.yaml"

    return write


@pytest.mark.parametrize(
    "init",
    [
        {},
        pytest.param({"adapter_rank": 2}, marks=pytest.mark.slow),
        pytest.param({"freeze": ["embeddings", "encoder"]}, marks=pytest.mark.slow),
    ],
)
def test_an_imported_model_is_fine_tuned_in_both_directions(
    imported_part_of_nllb, child_config, mt, tmp_path, export, init
):
    status, _, err = mt("train", "--config", child_config(corpus={"both_directions": True}, init=init))
    assert status == 0, err
    child = TrainedRun.load(tmp_path / "runs/child")
    assert child.config.corpus.tags == ("<spa_Latn>ayr_Latn>", "<ayr_Latn>spa_Latn>")
    changed = different_weights(child.model, TrainedRun.load(imported_part_of_nllb).model)
    assert changed
    if "freeze" in init:
        assert not [name for name in changed if "encoder" in name or "embedding" in name]
    translator = Translator.load(tmp_path / "runs/child", device="cpu")
    for source, target in (("spa_Latn", "ayr_Latn"), ("ayr_Latn", "spa_Latn")):
        tag = translator.target_tag(target)
        (there,) = translator.translate_fully(["one two three"], tag=tag, with_details=True)
        assert there.details.source_tokens[0] == f"<{source}>"
        (score,) = translator.score(["one two three"], [there.text], tag=tag)
        assert score.token_scores == pytest.approx(there.details.token_scores, abs=1e-4)
    assert "cc-by-nc-4.0" in export("runs/child", "bundle", "back")
    assert json.loads((tmp_path / "runs/child/report.json").read_text())["parents"][0]["parents"][0]["license"]


@pytest.mark.slow
def test_new_characters_get_pieces_in_the_run_and_its_export(
    imported_part_of_nllb, child_config, mt, tmp_path, export, transformers
):
    config = child_config(init={"vocabulary": "extend"})
    write_lines(tmp_path / "train.b", CHINESE)
    status, _, err = mt("train", "--config", config)
    assert status == 0, err
    before, after = (TrainedRun.load(path).tokenizers[1] for path in (imported_part_of_nllb, tmp_path / "runs/child"))
    assert any(1 in ids for ids in before.encode(CHINESE)) and not any(1 in ids for ids in after.encode(CHINESE))
    assert after.languages == before.languages and after.decode(after.encode(CHINESE)) == CHINESE
    export("runs/child", "huggingface", "back")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "back", src_lang="spa_Latn")
    assert [theirs.tokenize(line) for line in CHINESE[:4]] == [after.pieces(line) for line in CHINESE[:4]]


@pytest.mark.parametrize(
    ("corpus", "named"),
    [({"tag": None}, "corpus.tag"), ({"tag": "to_target"}, "<2ayr_Latn>"), ({"target": "grn_Latn"}, "grn_Latn")],
)
def test_a_config_without_directions_of_its_parent_is_refused(child_config, mt, tmp_path, corpus, named):
    status, _, err = mt("train", "--config", child_config(corpus=corpus))
    assert status == 2 and named in err, err
    assert not (tmp_path / "runs").exists()


def keep_fast_tokenizer(folder, is_older):
    """Leave `tokenizer.json` alone, as it is or as version 4.33 of `transformers` writes it."""
    (folder / SPM).unlink()
    tree = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    if is_older:
        tree["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
        spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
        tree["normalizer"]["normalizers"][1:] = [spaces]
        tree["model"]["merges"] = [" ".join(merge) for merge in tree["model"]["merges"]]
    (folder / "tokenizer.json").write_text(json.dumps(tree))


def keep_pieces(folder, version, ids):
    """Leave the SentencePiece model, with the languages and the mask where a version writes them."""
    (folder / "tokenizer.json").unlink()
    names, config = [name for name in ids if name != "<mask>"], {"tokenizer_class": "NllbTokenizer"}
    if version == "before 4.34":
        (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": names}))
    elif version == "added_tokens_decoder":
        config |= {"added_tokens_decoder": {index: {"content": name} for name, index in ids.items()}}
    else:
        config |= {"extra_special_tokens": names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    "version",
    [
        *("tokenizer.json of 4.33", "before 4.34", "extra_special_tokens"),
        *(pytest.param(version, marks=pytest.mark.slow) for version in ("tokenizer.json", "added_tokens_decoder")),
    ],
)
def test_tokenizer_files_of_all_versions_are_read_alike(nllb_folder, imported_nllb, run_of, tmp_path, version):
    folder = shutil.copytree(nllb_folder, tmp_path / "nllb")
    tree = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = {token["content"]: token["id"] for token in tree["added_tokens"]}
    ids = {name: index for name, index in added.items() if name == "<mask>" or name.endswith(("_Latn", "_Cyrl"))}
    if version.startswith("tokenizer.json"):
        keep_fast_tokenizer(folder, version.endswith("4.33"))
    else:
        keep_pieces(folder, version, ids)
    ids.pop("<mask>")
    run, whole = run_of(folder, "again", "--languages", ",".join(ids)), TrainedRun.load(imported_nllb)
    texts = [*LINES, " one", "  one  two ", ""]
    assert [*map(run.tokenizers[0].pieces, texts)] == [*map(whole.tokenizers[0].pieces, texts)]
    assert run.tokenizers[0].languages == tuple(ids)
    table = load_file(folder / "model.safetensors")["model.shared.weight"]
    for name in ids.keys() - {"eng_Latn"}:
        ((first,),) = run.tokenizers[0].first_target_ids([f"<eng_Latn>{name}>"])
        row = table[ids[name] - (version == "before 4.34")]  # There, the mask follows the languages.
        assert torch.equal(run.model.source_embedding.table.weight[first], row)


def test_a_language_added_to_m2m100_is_one_of_its_languages(m2m100_folder, run_of, tmp_path):
    folder = shutil.copytree(m2m100_folder, tmp_path / "m2m100")
    table = load_file(folder / "model.safetensors")["model.shared.weight"]
    num_entries = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    index = num_entries + 102  # After the hundred languages of M2M100.
    (folder / "added_tokens.json").write_text(json.dumps({"__quy__": index}))
    run = run_of(folder, "added", "--languages", "es,quy")
    ((first,),) = run.tokenizers[0].first_target_ids(["<es>quy>"])
    assert torch.equal(run.model.source_embedding.table.weight[first], table[index])
