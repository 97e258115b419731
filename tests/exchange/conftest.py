"""Published models, imported runs and exports, made once a session, and functions that import and export runs.

All workers share the folders of a session: copy one before you change it.
"""

import json
from dataclasses import replace

import pytest

DIRECTIONS = {"m2m100": ("de", "ru"), "nllb": ("eng_Latn", "ayr_Latn")}
"""Of an import; the others are English to German."""


@pytest.fixture(scope="session")
def published(one_thread, once):
    """A function that writes a random model as it is published: `published(kind)` is its folder KIND-en-de.

    `write` writes another model, which then needs a name of its own.
    """
    pytest.importorskip("transformers", reason="transformers is not installed")

    def folder_of(name, write=None):
        def make(folder):
            from m2m100_files import write_m2m100, write_nllb
            from marian_files import write_marian

            writers = {"marian": write_marian, "m2m100": write_m2m100, "nllb": write_nllb}
            (folder / f"{name}-en-de").mkdir()
            (write or writers[name])(folder / f"{name}-en-de")

        return once(f"published-{name}", make) / f"{name}-en-de"

    return folder_of


@pytest.fixture(scope="session")
def imported(published, once):
    """A function that imports the model `published(name, write)` once; returns the path of the run."""
    from mt_cli.exchange.importing import import_model

    def run_of(name, write=None):
        def make(runs):
            import_model(str(published(name, write)), runs / name, DIRECTIONS.get(name, ("en", "de")))

        return once(f"imported-{name}", make) / name

    return run_of


@pytest.fixture(scope="session")
def imported_part_of_nllb(published, once):
    """Run of the NLLB model with three of its languages."""
    from mt_cli.exchange.importing import import_model
    from mt_cli.exchange.m2m100 import Selection

    def make(runs):
        selection = Selection(["spa_Latn", "ayr_Latn", "quy_Latn"])
        import_model(str(published("nllb")), runs / "part", (None, None), selection=selection)

    return once("imported-part", make) / "part"


@pytest.fixture
def train_child(mt, tiny_tree, tmp_path):
    """A function that trains a run of two updates that begins with another one: (exit status, standard error)."""

    def train(parent, texts, corpus, **init):
        for name, lines in texts.items():
            (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        del tiny_tree["model"]
        tiny_tree["name"], tiny_tree["init"] = "child", {"run": str(parent)} | init
        filters = {"duplicates": False, "overlap": False, "wrong_language": False}
        files = {"train": {"files": [*texts]}, "valid": {"fraction": 0.1}}
        tiny_tree["corpus"] = files | {"filters": filters, "max_tokens": 100} | corpus
        tiny_tree["training"] |= {"max_steps": 2, "batch_tokens": 1000, "validate_every_steps": 2}
        tiny_tree["decoding"] = {"beam_size": 1, "max_length_ratio": 0.5}
        (tmp_path / "child.yaml").write_text(json.dumps(tiny_tree))
        status, _, err = mt("train", "--config", "child.yaml")
        return status, err

    return train


@pytest.fixture(scope="session")
def bundle(trained, once):
    """Bundle of the run `trained`."""
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.exchange.bundle import export_bundle

    return once("bundle", lambda folder: export_bundle(TrainedRun.load(trained), folder / "model")) / "model"


@pytest.fixture
def with_random_model():
    """A function that gives a run another model, which has these options and random weights."""
    import torch

    from mt_cli.config.sections import ModelConfig
    from mt_cli.model.transformer import Transformer

    def change(run, options):
        torch.manual_seed(1)
        sizes = {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 2}
        model_config = ModelConfig(**sizes | options)
        model = Transformer(model_config, *(tokenizer.vocab_size for tokenizer in run.tokenizers))
        for weight in model.parameters():
            torch.nn.init.normal_(weight, *((0, 0.2) if weight.dim() > 1 else (0.5,)))
        is_shared = run.tokenizers[0] is run.tokenizers[1]
        tokenizer = run.config.tokenizer.model_copy(update={"shared": is_shared})
        config = run.config.model_copy(update={"model": model_config, "tokenizer": tokenizer})
        return replace(run, model=model, config=config)

    return change


@pytest.fixture
def run_of(mt, tmp_path):
    """A function that imports a model as a run and loads it."""
    from mt_cli.checkpoint.trained import TrainedRun

    def convert(folder, name="opus", *options):
        status, out, err = mt("import", folder, "--output", f"runs/{name}", *options)
        assert (status, out) == (0, f"runs/{name}\n"), err
        return TrainedRun.load(tmp_path / "runs" / name)

    return convert


@pytest.fixture
def export(mt):
    """A function that exports a run and returns the messages."""

    def write(run, kind, output):
        status, out, err = mt("export", "--run", run, "--format", kind, "--output", output)
        assert (status, out) == (0, ""), err
        return err

    return write


@pytest.fixture(scope="session")
def transformers():
    """The library, which takes seconds to import."""
    return pytest.importorskip("transformers", reason="transformers is not installed")
