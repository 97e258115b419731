"""Files of dataset repositories with the layouts of real ones, and generated sentences."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from corpora import sentences


def card(**metadata):
    return f"---\n{yaml.safe_dump(metadata)}---\n\n# A dataset\n".encode()


def parquet(pairs, languages):
    """Parquet file with a column of ids and one with translations."""
    translations = [dict(zip(languages, pair, strict=True)) for pair in pairs]
    file = io.BytesIO()
    pq.write_table(pa.table({"id": [str(index) for index in range(len(pairs))], "translation": translations}), file)
    return file.getvalue()


def opus_books(configurations):
    """Files as in `Helsinki-NLP/opus_books`, of the pairs of each configuration such as `en-it`."""
    paths = {name: f"{name}/train-00000-of-00001.parquet" for name in configurations}
    configs = [{"config_name": name, "data_files": [{"split": "train", "path": path}]} for name, path in paths.items()]
    files = {paths[name]: parquet(pairs, name.split("-")) for name, pairs in configurations.items()}
    return {"README.md": card(configs=configs), **files}


def json_lines(pairs, columns):
    rows = (dict(zip(columns, pair, strict=True)) for pair in pairs)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def add_datasets(hub, number=60):
    """Give a hub the datasets of the configs `opus_books_en_it` and `multi30k_en_de`, in small."""
    pairs = sentences(number + 40)
    train, valid, test = pairs[:number], pairs[number : number + 20], pairs[number + 20 :]
    hub.dataset("Helsinki-NLP/opus_books", opus_books({"en-it": train, "de-en": [pair[::-1] for pair in train]}))
    lines = {"train": train, "val": valid, "test": test}
    files = {f"{split}.jsonl": json_lines(rows, ["en", "de"]) for split, rows in lines.items()}
    hub.dataset("bentrevett/multi30k", {"README.md": card(language=["en", "de"]), **files})
