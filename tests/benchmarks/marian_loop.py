"""Train `MarianMTModel` of Hugging Face at the same size in a plain loop; print a line of JSON. Needs `transformers`.

The batches are files of ids written by train_speed.py, so that this script can run in its own environment.
"""

import json
import sys
import time

import torch
from transformers import MarianConfig, MarianMTModel


def main(path: str, precision: str) -> None:
    torch.manual_seed(1)
    batches = torch.load(path, weights_only=True)
    vocab_size = 10_000
    config = MarianConfig(
        vocab_size=vocab_size,
        decoder_vocab_size=vocab_size,
        d_model=256,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        dropout=0.1,
        activation_function="relu",
        pad_token_id=0,
        eos_token_id=3,
        bos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        scale_embedding=True,
    )
    model = MarianMTModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    loss_of = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
    rates = []
    for batch in batches:
        started_at = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = model(
                input_ids=batch["src"], attention_mask=batch["src"] != 0, decoder_input_ids=batch["tgt"]
            ).logits
            loss = loss_of(logits.flatten(0, 1).float(), batch["label"].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        rates.append(int((batch["label"] != 0).sum()) / (time.perf_counter() - started_at))
    print(json.dumps({"target_tokens_per_second": sorted(rates[2:])[len(rates[2:]) // 2]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
