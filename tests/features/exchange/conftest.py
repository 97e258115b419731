"""Published models, imported runs and exports, made once a session, and functions that import and export runs.

All workers share the folders of a session: copy one before you change it.
"""

from dataclasses import replace

import pytest

DIRECTIONS = {
    "marian": ("en", "de"),
    "m2m100": ("de", "ru"),
    "nllb": ("eng_Latn", "ayr_Latn"),
}


@pytest.fixture(scope="session")
def published(one_thread, once):
    """A function that writes a model as it is published: `published(name, write)` is its folder NAME-en-de."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

    def folder_of(name, write):
        def make(folder):
            (folder / f"{name}-en-de").mkdir()
            write(folder / f"{name}-en-de")

        return once(f"published-{name}", make) / f"{name}-en-de"

    return folder_of


@pytest.fixture(scope="session")
def marian_folder(published):
    """Folder of a random MarianMT model with one vocabulary for both languages."""
    from marian_files import write_marian

    return published("marian", write_marian)


@pytest.fixture(scope="session")
def m2m100_folder(published):
    """Folder of a random M2M100 model."""
    from m2m100_files import write_m2m100

    return published("m2m100", write_m2m100)


@pytest.fixture(scope="session")
def nllb_folder(published):
    """Folder of a random NLLB model."""
    from m2m100_files import write_nllb

    return published("nllb", write_nllb)


@pytest.fixture(scope="session")
def imported(once):
    """A function that imports a folder once: `imported(name, folder, languages)` is the path of the run."""
    from mt_cli.features.exchange.importing import import_model

    def run_of(name, folder, languages, selection=None):
        def make(runs):
            import_model(str(folder), runs / name, languages, selection=selection)

        return once(f"imported-{name}", make) / name

    return run_of


@pytest.fixture(scope="session")
def imported_marian(imported, marian_folder):
    """Run of `marian_folder`."""
    return imported("marian", marian_folder, DIRECTIONS["marian"])


@pytest.fixture(scope="session")
def imported_m2m100(imported, m2m100_folder):
    """Run of `m2m100_folder` with its whole vocabulary."""
    return imported("m2m100", m2m100_folder, DIRECTIONS["m2m100"])


@pytest.fixture(scope="session")
def imported_nllb(imported, nllb_folder):
    """Run of `nllb_folder` with its whole vocabulary."""
    return imported("nllb", nllb_folder, DIRECTIONS["nllb"])


@pytest.fixture(scope="session")
def imported_part_of_nllb(imported, nllb_folder):
    """Run of `nllb_folder` with three of its languages."""
    from mt_cli.features.exchange.m2m100 import Selection

    return imported("part", nllb_folder, (None, None), Selection(["spa_Latn", "ayr_Latn", "quy_Latn"]))


@pytest.fixture(scope="session")
def bundle(trained, once):
    """Bundle of the run `trained`."""
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.features.exchange.bundle import export_bundle

    return once("bundle", lambda folder: export_bundle(TrainedRun.load(trained), folder / "model")) / "model"


@pytest.fixture(scope="session")
def served(trained, once):
    """Export of the run `trained` to CTranslate2."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.features.exchange.ctranslate2 import export_ctranslate2

    def make(folder):
        export_ctranslate2(TrainedRun.load(trained), folder / "model", "float32", ["one two.", "ten."])

    return once("served", make) / "model"


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
