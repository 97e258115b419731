"""The path of a GPU without one: on the device `meta`, which has no values to read, and with its branches on a CPU."""

import sys
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from meta_device import OnMeta, Reads

from mt_cli.batching.batches import collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.checkpoint.state import RunState
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.decoding import next_tokens
from mt_cli.decoding.next_tokens import FREE, Constraints, TokenMask, best_by_statistics, best_tokens
from mt_cli.decoding.row_statistics import plain_statistics
from mt_cli.decoding.search import Beams, Samples, search, start_search
from mt_cli.errors import DivergenceError
from mt_cli.evaluation.token_loss import score_tokens
from mt_cli.machine.devices import seed_device
from mt_cli.model import kernels
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.transformer import Transformer, outline
from mt_cli.run.describe import notes_on_device
from mt_cli.run.training_log import TrainingLog
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import Position, StepReport

META = torch.device("meta")
VARIANTS = [
    {},
    {"positions": "rotary", "activation": "swiglu", "tie_embeddings": "all"},
    {"positions": "learned", "norm_order": "post", "activation": "gelu", "output_bias": True, "qkv_bias": False},
]


def config_of(**options):
    sizes = {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
    return ModelConfig(**sizes | {"dropout": 0.0} | options)


def on_meta(dtype=torch.float32, **options):
    return outline(config_of(**options), 12, 12).to(META, dtype)


def some_pairs(number=40):
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 9, (number, 2), generator=generator).tolist()
    sequences = [[torch.randint(4, 12, (n,), generator=generator).tolist() for n in row] for row in lengths]
    return EncodedPairs.from_ids([row[0] for row in sequences], [row[1] for row in sequences])


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, marks=pytest.mark.slow), torch.bfloat16])
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_validation_reads_two_sums_of_each_batch_after_the_last_batch(dtype, options):
    objective, events = Objective(on_meta(dtype, **options), TrainingConfig()), []
    objective.register_forward_hook(lambda *_: events.append("batch"))
    with Reads(__float__=lambda sums: events.append("read") or 1.0):
        score_tokens(objective, some_pairs(), 60)
    num_batches = events.count("batch")
    assert num_batches > 2
    assert events == ["batch"] * num_batches + ["read"] * 2 * num_batches


SEARCHES = [
    {"beam_size": 1},
    {"beam_size": 3},
    {"beam_size": 3, "no_repeat_ngram": 2, "unk": "avoid", "min_length": 2},
    {"sample": True, "top_k": 5, "top_p": 0.9},
]


def started(decoding, num_sentences, device):
    """The state of a search, and its constraints: all translations have two tokens, the first of some is forced."""
    ids = torch.full((num_sentences, 1), FREE, device=device)
    constraints = Constraints(decoding, frozenset([2]), torch.full((num_sentences,), 2, device=device), ids)
    if decoding.sample or decoding.beam_size == 1:
        scores = torch.zeros(num_sentences, 2, device=device)
        random_numbers = torch.zeros(num_sentences, 2, 4, device=device)
        return constraints, Samples(scores.long()[..., None][..., :0], scores, scores == 0, random_numbers)
    return constraints, Beams.start(num_sentences, decoding.beam_size, device)


@torch.inference_mode()
def states_on_meta(model, decoding, num_steps):
    """The length, the state and the newest tokens of each step of a search; its cache grows after eight positions."""
    constraints, state = started(decoding, 5, META)
    num_beams = state.scores.shape[1]
    cache = model.start(torch.full((5, 7), EOS_ID, device=META), num_beams)
    tokens = torch.full((5 * num_beams,), SOS_ID, device=META)
    for length in range(1, num_steps + 1):
        state = state.extend(model.next(tokens, cache), constraints.next_after(state.ids), decoding)
        cache.select(state.parents)
        tokens = state.ids[:, :, -1].flatten()
        yield length, state, tokens


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_every_operation_of_a_search_is_on_the_device(options):
    model = Ensemble([on_meta(**options) for options in VARIANTS]).eval()
    with OnMeta() as seen:
        list(states_on_meta(model, DecodingConfig(**options), 9))
    assert seen.num_copies == 0


@pytest.mark.parametrize("options", SEARCHES[:3], ids=str)
def test_a_search_reads_once_a_step_and_twice_for_all_translations_that_are_done(options):
    num_steps, num_sentences = 12, 20

    def values_of(tensor):
        """Flags of steps, in which fifteen sentences end at the third and the others at the last; ids; or scores."""
        if tensor.dtype != torch.bool:
            return torch.full(tensor.shape, EOS_ID if tensor.dim() == 3 else 0, dtype=tensor.dtype)
        values = torch.zeros(tensor.shape, dtype=torch.bool)
        step = reads.names.count("cpu")
        values[0, : 15 if step == 3 else 20] = step in (3, num_steps)
        return values

    src_ids = torch.full((num_sentences, 7), EOS_ID, device=META)
    with Reads(cpu=values_of, tolist=lambda lengths: [50] * num_sentences) as reads:
        read = start_search(on_meta().eval(), src_ids, DecodingConfig(**options))
    assert reads.names.count("cpu") == num_steps and reads.names.count("tolist") == 1  # The longest lengths.
    with Reads(cpu=values_of) as reads:
        found = read()
    assert len(found) == num_sentences and all(best.ids == [] for best, *_ in found)
    assert reads.names.count("cpu") == 2 * 2


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_a_search_with_a_model_that_diverged_is_an_error(options):
    model = Transformer(config_of(), 12, 12).eval()
    torch.nn.init.constant_(model.projection.weight, float("nan"))
    with pytest.raises(DivergenceError, match="not numbers"):
        search(model, torch.full((5, 7), EOS_ID), DecodingConfig(**options))


@pytest.fixture
def forced(monkeypatch):
    """A function that makes every branch take the way of other devices than CPUs, on a CPU."""

    def force():
        modules = [each for each in sys.modules.values() if getattr(each, "is_cpu", None) is kernels.is_cpu]
        assert {module.__name__ for module in modules} >= {"mt_cli.model.kernels", "mt_cli.model.fused_loss"}
        for module in modules:
            monkeypatch.setattr(module, "is_cpu", lambda x: False)

    return force


def sums_and_gradients(objective, batch):
    objective.zero_grad()
    sums = GradientAccumulator(objective.train(), torch.float32).accumulate([batch], batch.num_target_tokens)
    return sums, [weight.grad for weight in objective.parameters()]


@pytest.mark.parametrize("r_drop", [None, 3.0])
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_the_branches_of_other_devices_have_the_loss_and_the_gradient_of_those_for_cpus(forced, options, r_drop):
    objective = Objective(Transformer(config_of(**options), 12, 12), TrainingConfig(r_drop=r_drop))
    batch = collate(some_pairs(), range(40))
    expected, gradients = sums_and_gradients(objective, batch)
    forced()
    sums, found = sums_and_gradients(objective, batch)
    assert [float(each) for each in vars(sums).values()] == pytest.approx(
        [float(each) for each in vars(expected).values()]
    )
    for one, other in zip(found, gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("decoding", [*SEARCHES[:3], SEARCHES[3] | {"seed": 4}], ids=str)
def test_the_branches_of_other_devices_find_the_translations_of_those_for_cpus(forced, options, decoding):
    model = Transformer(config_of(**options), 12, 12).eval()
    src_ids = torch.randint(4, 12, (9, 6))
    src_ids[:, -1] = EOS_ID
    expected = search(model, src_ids, DecodingConfig(**decoding), 2)
    forced()
    for ours, theirs in zip(search(model, src_ids, DecodingConfig(**decoding), 2), expected, strict=True):
        assert [each.ids for each in ours] == [each.ids for each in theirs]
        assert [each.score for each in ours] == pytest.approx([each.score for each in theirs], abs=1e-4)


def test_only_attention_of_a_decoder_to_whole_sentences_of_its_own_is_causal_without_a_mask(forced, monkeypatch):
    calls, attention = [], F.scaled_dot_product_attention
    forced()

    def noted(query, key, value, mask, dropout, is_causal):
        assert (mask is None) == is_causal
        calls.append(is_causal)
        return attention(query, key, value, mask, dropout, is_causal)

    monkeypatch.setattr(F, "scaled_dot_product_attention", noted)
    model = Transformer(config_of(num_encoder_layers=2, num_decoder_layers=2), 12, 12).eval()
    model.hidden_states(collate(some_pairs(), range(5)))
    assert calls == [False] * 2 + [True, False] * 2
    calls.clear()
    model.next(torch.full((3,), SOS_ID), model.start(torch.full((3, 4), EOS_ID)))
    assert calls == [False] * (2 + 2 * 2)


MASKS = [
    TokenMask((0, 2)),
    TokenMask((0, 2, 3)),
    TokenMask((0, 1, 2, 3), forced=torch.tensor([FREE, 9, 3, FREE, 70, FREE])),
    TokenMask((0, 2, 3), repeated=torch.randint(300, (6, 40), generator=torch.Generator().manual_seed(2))),
]


@pytest.mark.parametrize(
    ("mask", "size"),
    [*product(MASKS[:2], [5, 64, 70]), *product(MASKS, [300, 640])],  # Others need more tokens.
)
@pytest.mark.parametrize("number", [1, 4])
def test_statistics_of_rows_have_the_best_tokens_of_all_log_probabilities(mask, size, number):
    logits = torch.randn(6, size, generator=torch.Generator().manual_seed(1))
    logits[:, :4] += 9  # Masked tokens are likely.
    expected_values, expected_tokens = best_tokens(logits.clone(), number, mask)
    values, tokens = best_by_statistics(logits.clone(), number, mask, *plain_statistics(logits))
    assert torch.allclose(values, expected_values, atol=1e-5)
    is_possible = ~expected_values.isneginf()
    assert torch.equal(tokens[is_possible], expected_tokens[is_possible]) and is_possible[:, 0].any()


def test_statistics_of_rows_that_are_not_numbers_are_not_numbers():
    logits = torch.zeros(2, 128)
    logits[1, 100] = float("nan")
    values, _ = best_by_statistics(logits.clone(), 2, TokenMask((0, 2)), *plain_statistics(logits))
    assert values.isnan().tolist() == [[False, False], [True, True]]


def test_the_best_tokens_of_all_rows_at_once_are_those_of_a_few_at_a_time(forced, monkeypatch):
    logits, forced_R = torch.randn(23, 300), torch.full((23,), FREE)
    forced_R[3], forced_R[20] = 7, EOS_ID
    allowed = TokenMask((0, 1), forced_R, torch.randint(4, 300, (23, 2)))
    monkeypatch.setattr(next_tokens, "_ELEMENTS_AT_ONCE", 1_500)  # Five rows.
    expected = best_tokens(logits, 4, allowed)
    forced()
    for one, other in zip(best_tokens(logits, 4, allowed), expected, strict=True):
        assert torch.equal(one, other)
    values, tokens = expected
    for row, token in ((3, 7), (20, EOS_ID)):
        assert tokens[row, 0] == token and values[row, 1:].isneginf().all()
        assert values[row, 0] == pytest.approx(logits[row].log_softmax(dim=0)[token].item(), abs=1e-5)


class Rows:
    """In place of the records and of a progress bar."""

    def __init__(self):
        self.rows = []

    def __call__(self, step, metrics):
        self.rows.append((step, metrics["train/loss"], metrics["train/token_accuracy"], metrics["train/grad_norm"]))

    def advance(self):
        pass

    def show(self, **values):
        pass


def logged(num_steps):
    """The rows of some steps, one of them bad, every third step; steps not in a row, before and after reading them."""
    optimizer = build_optimizer(torch.nn.Linear(2, 2), TrainingConfig())
    state, rows = RunState(Position()), Rows()
    log = TrainingLog(TrainingConfig(log_every_steps=3), state, rows, rows, optimizer)
    for step in range(1, num_steps + 1):
        values = [torch.tensor(float(each)) for each in (step, 10 * step, 2 * step)]
        log.add(StepReport(step, 0.1, *values, torch.tensor(step != 5), 4 * step, 0.0, 0.1, [], 0))
    unread = len(state.unlogged)
    log.drain()
    return rows.rows, unread, [(step.cross_entropy, step.num_correct) for step in state.unlogged]


def test_reports_that_wait_on_a_device_give_the_rows_and_the_state_of_those_read_at_once(forced):
    rows, num_read, unlogged = logged(8)
    assert len(rows) == num_read == len(unlogged) == 2
    forced()
    assert logged(8) == (rows, 0, unlogged)


def test_random_numbers_of_a_step_are_those_of_its_own_device(monkeypatch):
    calls = []

    class Current:
        def __init__(self, device):
            calls.append(device)

        def __enter__(self):
            pass

        def __exit__(self, *error):
            calls.append("end")

    monkeypatch.setattr(torch.cuda, "device", Current)
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: calls.append("seed"))
    seed_device(torch.device("cuda", 1), 7, 8)
    assert calls == [torch.device("cuda", 1), "seed", "end"]


def test_a_run_on_a_gpu_says_that_its_config_was_written_for_a_cpu(tiny_tree):
    training = tiny_tree["training"] | {"batch_tokens": 25_000}
    config = parse_config(tiny_tree | {"training": training}, "tiny")
    for_cpu = parse_config(tiny_tree | {"training": training | {"planned_for": "cpu"}}, "tiny")
    for device in (META, torch.device("cuda"), torch.device("mps")):
        (note,) = notes_on_device(for_cpu, device)
        assert note.startswith("note: mt init wrote this config on a CPU") and notes_on_device(config, device) == []
    assert notes_on_device(for_cpu, torch.device("cpu")) == []
