"""Runs with random models, and functions that export and import runs through the command line."""

from dataclasses import replace

import pytest


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
