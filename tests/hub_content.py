"""Files of dataset repositories with the layouts of real ones, and generated sentences."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from corpora import sentences


def card(**metadata):
    return f"---\n{yaml.safe_dump(metadata)}---\n\n# A dataset\n".encode()


def parquet(pairs, languages, with_ids=False):
    """Parquet file with a column `translation`, and one of ids if `with_ids`."""
    columns = {"id": [str(index) for index in range(len(pairs))]} if with_ids else {}
    columns["translation"] = [dict(zip(languages, pair, strict=True)) for pair in pairs]
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def shards(name, pairs, number, languages, with_ids=False):
    """Files of a split, named as `datasets` names its uploads."""
    blocks = [pairs[len(pairs) * index // number : len(pairs) * (index + 1) // number] for index in range(number)]
    names = [f"{name}-{index:05}-of-{number:05}.parquet" for index in range(number)]
    return {name: parquet(block, languages, with_ids) for name, block in zip(names, blocks, strict=True)}


def configuration(name, splits, languages, with_ids=False):
    """Entries of a card about a configuration: its files, and its columns and numbers of rows."""
    translation = {"name": "translation", "dtype": {"translation": {"languages": list(languages)}}}
    ids = [{"name": "id", "dtype": "string"}] if with_ids else []
    sizes = [{"name": split, "num_bytes": 1, "num_examples": len(pairs)} for split, pairs in splits.items()]
    info = {"config_name": name, "features": [*ids, translation], "splits": sizes}
    files = [{"split": split, "path": f"{name}/{split}-*"} for split in splits]
    return {"config_name": name, "data_files": files}, info


def opus_books(configurations):
    """Files as in `Helsinki-NLP/opus_books`: configurations such as `en-it`, each with one split in one file.

    `configurations` maps their names to pairs of sentences.
    """
    files, configs, infos = {}, [], []
    for name, pairs in configurations.items():
        config, info = configuration(name, {"train": pairs}, name.split("-"), with_ids=True)
        configs.append(config)
        infos.append(info)
        files |= shards(f"{name}/train", pairs, 1, name.split("-"), with_ids=True)
    languages = sorted({code for name in configurations for code in name.split("-")})
    return {"README.md": card(language=languages, dataset_info=infos, configs=configs), **files}


def wmt14(splits, name="de-en", num_shards=3):
    """Files as in `wmt/wmt14`: a configuration whose training split has several files, of (German, English)."""
    config, info = configuration(name, splits, name.split("-"))
    files = {}
    for split, pairs in splits.items():
        files |= shards(f"{name}/{split}", pairs, num_shards if split == "train" else 1, name.split("-"))
    return {"README.md": card(language=name.split("-"), dataset_info=[info], configs=[config]), **files}


def multi30k(splits):
    """Files as in `bentrevett/multi30k`: JSON Lines with the columns `en` and `de` for each split, no configuration.

    `splits` maps `train`, `val` and `test`, which are the names of the files, to (English, German).
    """
    files = {f"{split}.jsonl": json_lines(pairs, ["en", "de"]) for split, pairs in splits.items()}
    return {"README.md": card(language=["en", "de"], size_categories=["10K<n<100K"]), **files}


def json_lines(pairs, columns):
    rows = (dict(zip(columns, pair, strict=True)) for pair in pairs)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def with_script(name):
    """Repository of the old kind: a loading script, which `datasets` no longer runs, and no data."""
    return {"README.md": card(language=["en"]), f"{name}.py": b"import datasets\n"}


def add_datasets(hub, number=60):
    """Give a hub the datasets of the configs `opus_books_en_it`, `multi30k_en_de` and `vaswani_base`, in small."""
    pairs = sentences(number + 40)
    train, valid, test = pairs[:number], pairs[number : number + 20], pairs[number + 20 :]
    hub.dataset("Helsinki-NLP/opus_books", opus_books({"en-it": train, "de-en": [pair[::-1] for pair in train]}))
    hub.dataset("bentrevett/multi30k", multi30k({"train": train, "val": valid, "test": test}))
    reverse = {"train": train, "validation": valid, "test": test}
    hub.dataset("wmt/wmt14", wmt14({split: [pair[::-1] for pair in each] for split, each in reverse.items()}))
