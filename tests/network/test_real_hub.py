"""Laws that need the Hugging Face hub itself: run with `pytest -m network -n 0 tests/network`."""

import json

import pytest
import yaml

pytestmark = pytest.mark.network

DATASETS = {
    "opus_books_en_it": ("en", "it", {"dataset": "Helsinki-NLP/opus_books", "subset": "en-it"}, 32_332),
    "multi30k_en_de": ("en", "de", {"dataset": "bentrevett/multi30k", "columns": ["en", "de"]}, 29_000),
}


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_is_read_once_and_then_without_a_network(forked, tmp_path, name):
    source, target, dataset, number = DATASETS[name]
    corpus = {"source": source, "target": target, "train": dataset, "valid": {"fraction": 0.01}}
    (tmp_path / "data.yaml").write_text(yaml.safe_dump({"name": "data", "corpus": corpus}), encoding="utf-8")
    command = ("data", "check", "--config", "data.yaml", "--json")
    _, out, err = forked(*command, environment={"HF_HOME": str(tmp_path / "home")})
    assert out, err
    train = next(row for row in json.loads(out)["corpora"] if row["corpus"] == "train")
    assert (train["num_read"], len(train["commit"])) == (number, 40)
    _, again, err = forked(*command, environment={"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"})
    assert again == out, err


def test_a_published_model_translates(forked, tmp_path):
    output = tmp_path / "opus"
    status, _, err = forked("import", "Helsinki-NLP/opus-mt-en-it", "--output", output, "--allow-pickle")
    assert status == 0, err
    status, out, err = forked("translate", "--run", output, "Where is the station?")
    assert "stazione" in out, err


def test_the_hub_accepts_a_model_card(trained):
    from huggingface_hub import ModelCard

    from mt_cli.evaluation.results import RunSummary
    from mt_cli.exchange.card import model_card

    ModelCard(model_card(RunSummary.read(trained), "cc-by-4.0")).validate()
