"""M2M100 and NLLB as runs: whole, in part, fine-tuned and exported again, they do what `transformers` does."""

import json
from types import SimpleNamespace

import pytest
import torch
from marian_files import LINES

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID
from mt_cli.translation.translator import Translator

TEXTS = [" ".join(line.split()) for line in LINES[::9][:12] + LINES[-6:-1]]
CHINESE = ["一个男人在睡觉。", "两只狗在看一个男人。", "一个女人在看书。", "狗在睡觉。"] * 10
CHILD = {"source": "spa_Latn", "target": "ayr_Latn", "tag": "direction"}
SPM = "sentencepiece.bpe.model"
both_kinds = pytest.mark.parametrize("model", ["m2m100", "nllb"], indirect=True)
one_kind = pytest.mark.parametrize("model", ["nllb", pytest.param("m2m100", marks=pytest.mark.slow)], indirect=True)


@pytest.fixture
def model(request, published, imported, transformers):
    """A published model by `transformers`, its files, and its run."""
    folder, path = published(request.param), imported(request.param)
    if request.param == "m2m100":
        spelling, tokenizer = "__{}__", transformers.M2M100Tokenizer(folder / "vocab.json", folder / SPM)
    else:
        spelling, tokenizer = "{}", transformers.AutoTokenizer.from_pretrained(folder)
    run = TrainedRun.load(path)
    source, target = run.config.corpus.languages
    tokenizer.src_lang = source
    return SimpleNamespace(
        **dict(folder=folder, path=path, run=run, tokenizer=tokenizer, source=source, target=target),
        original=transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval(),
        tag=f"<{source}>{target}>",
        id_of=lambda language: tokenizer.convert_tokens_to_ids(spelling.format(language)),
    )


def in_theirs(model):
    """For each id of a run, the id in the published model."""
    run, tokenizer, theirs = model.run, model.tokenizer, [1, 3, 0, 2]
    for entry in run.tokenizers[0].tokens(range(4, run.tokenizers[0].vocab_size)):
        name = entry.removeprefix("\ue000")
        if name.startswith("[unused"):
            theirs.append(int(name[8:-1]))
        elif name == "[mask]":
            theirs.append(tokenizer.convert_tokens_to_ids("<mask>"))
        elif name != entry and name.startswith("<"):
            theirs.append(model.id_of(name[1:-1]))
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
def test_an_imported_model_gives_the_logits_of_the_original(model):
    run, tokenizer, tag = model.run, model.tokenizer, model.tag
    assert run.config.corpus.tags == (tag, f"<{model.target}>{model.source}>")
    assert run.config.corpus.tagging.default == tag
    theirs = in_theirs(model)
    assert sorted(theirs) == list(range(model.original.config.vocab_size))
    for text in TEXTS:
        logits, src_ids, tgt_ids = logits_of(run, f"{tag} {text}", 7)
        their_ids = tokenizer(text)["input_ids"]
        assert [theirs[index] for index in src_ids] == their_ids, text
        assert theirs[tgt_ids[1]] == model.id_of(model.target)
        decoder = torch.tensor([[2, *(theirs[index] for index in tgt_ids[1:])]])
        with torch.inference_mode():
            expected = model.original(torch.tensor([their_ids]), decoder_input_ids=decoder).logits
        torch.testing.assert_close(logits, expected[..., theirs], atol=1e-5, rtol=1e-5)


@one_kind
def test_exports_are_imported_as_the_same_run_with_its_licence(model, run_of, export, tmp_path, transformers):
    run, kind = model.run, "m2m100" if "m2m100" in model.folder.name else "nllb"
    for program, back in (("huggingface", "back"), ("bundle", "bundle")):
        assert "cc-by-nc-4.0" in export(model.path, program, back)
        needed = (program, kind) == ("huggingface", "m2m100")
        options = ("--source-language", model.source, "--target-language", model.target) if needed else ()
        again = run_of(tmp_path / back, f"again-{program}", *options)
        for new, old in zip(again.tokenizers, run.tokenizers, strict=True):
            assert new.tokens(range(new.vocab_size)) == old.tokens(range(old.vocab_size))
            assert new.encode([*TEXTS, *LINES]) == old.encode([*TEXTS, *LINES])
        weights = again.model.state_dict()
        assert all(torch.equal(weight, weights[name]) for name, weight in run.model.state_dict().items())
        assert again.config.corpus.tagging == run.config.corpus.tagging
        assert [parent.license for parent in again.state.parents] == ["cc-by-nc-4.0"]
    card = (tmp_path / "back/README.md").read_text(encoding="utf-8")
    assert "license: cc-by-nc-4.0" in card and "forced_bos_token_id" in card
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    theirs.src_lang, tag = model.source, "" if kind == "nllb" else f"__{model.source}__ "
    for line in TEXTS:
        names = theirs.convert_ids_to_tokens(theirs(tag + line)["input_ids"])
        assert names == model.tokenizer.convert_ids_to_tokens(model.tokenizer(line)["input_ids"])


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
    weights = model.run.model.state_dict()
    for name, weight in part.model.state_dict().items():
        has_rows = "table" in name or "projection" in name
        assert torch.equal(weight, weights[name][rows] if has_rows else weights[name])
    for text in (f"{model.tag} {line}" for line in kept_lines):
        assert after.pieces(text) == before.pieces(text)
        torch.testing.assert_close(logits_of(part, text)[0], logits_of(model.run, text)[0][..., rows])
    alone = run_of(model.folder, "languages", *options).tokenizers[0]
    assert before.vocab_size > alone.vocab_size > after.vocab_size
    for text in (f"{model.tag} {line}" for line in TEXTS):
        assert alone.pieces(text) == before.pieces(text)


def test_a_new_language_begins_as_the_near_one(published, imported_part_of_nllb, run_of):
    run = run_of(
        published("nllb"), "new", "--languages", " spa_Latn,, ayr_Latn,", "--new-language", "grn_Latn=quy_Latn"
    )
    assert run.tokenizers[0].languages == ("spa_Latn", "ayr_Latn", "grn_Latn")
    assert len(run.config.corpus.tags) == 6 and run.config.corpus.languages == ("spa_Latn", "ayr_Latn")
    rows = []
    for one, tag in ((run, "<spa_Latn>grn_Latn>"), (TrainedRun.load(imported_part_of_nllb), "<spa_Latn>quy_Latn>")):
        ((index,),) = one.tokenizers[0].first_target_ids([tag])
        rows.append(one.model.source_embedding.table.weight[index])
    assert torch.equal(*rows)


def test_a_fine_tuned_model_translates_both_ways_with_new_characters(
    imported_part_of_nllb, train_child, tmp_path, export, transformers
):
    texts = {"train.a": LINES[:40], "train.b": CHINESE}
    corpus = CHILD | {"both_directions": True, "valid": {"files": ["train.a", "train.b"]}}
    status, err = train_child(imported_part_of_nllb, texts, corpus, vocabulary="extend")
    assert status == 0, err
    child = TrainedRun.load(tmp_path / "runs/child")
    assert child.config.corpus.tags == ("<spa_Latn>ayr_Latn>", "<ayr_Latn>spa_Latn>")
    before, after = TrainedRun.load(imported_part_of_nllb).tokenizers[1], child.tokenizers[1]
    assert any(1 in ids for ids in before.encode(CHINESE)) and not any(1 in ids for ids in after.encode(CHINESE))
    assert after.languages == before.languages and after.decode(after.encode(CHINESE)) == CHINESE
    translator = Translator.load(tmp_path / "runs/child", device="cpu")
    for source, target in (("spa_Latn", "ayr_Latn"), ("ayr_Latn", "spa_Latn")):
        tag = translator.target_tag(target)
        (there,) = translator.translate_fully(["one two three"], tag=tag, with_details=True)
        assert there.details.source_tokens[0] == f"<{source}>"
        (score,) = translator.score(["one two three"], [there.text], tag=tag)
        assert score.token_scores == pytest.approx(there.details.token_scores, abs=1e-4)
    assert "cc-by-nc-4.0" in export("runs/child", "huggingface", "back")
    assert json.loads((tmp_path / "runs/child/report.json").read_text())["parents"][0]["parents"][0]["license"]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "back", src_lang="spa_Latn")
    assert [theirs.tokenize(line) for line in CHINESE[:4]] == [after.pieces(line) for line in CHINESE[:4]]


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"tag": None}, "corpus.tag"), ({"tag": "to_target"}, "<2ayr_Latn>"), ({"target": "grn_Latn"}, "grn_Latn")],
)
def test_a_config_without_directions_of_its_parent_is_refused(
    imported_part_of_nllb, train_child, tmp_path, changes, named
):
    status, err = train_child(imported_part_of_nllb, {"a": LINES[:40], "b": LINES[40:80]}, CHILD | changes)
    assert status == 2 and named in err, err
    assert not (tmp_path / "runs").exists()
