import json
from dataclasses import replace

import pytest
import torch

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.decoding.engine import TransformerEngine
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID
from mt_cli.translation.translator import Translator

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

from m2m100_files import write_m2m100, write_nllb
from marian_files import LINES

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
    hypotheses = TransformerEngine(run.model).search(sources, decoding, prefixes=prefixes)
    ours = [[theirs[index] for index in best.ids] for (best, *_) in hypotheses]
    expected = generated(original, tokenizer, TEXTS, source, target, num_beams)
    # At the maximum length, `generate` ends translations without the probability of the end.
    ended = [pair for pair in zip(ours, expected, strict=True) if num_beams == 1 or max(map(len, pair)) < 17]
    assert len(ended) > 4
    assert [one for one, _ in ended] == [two for _, two in ended]
