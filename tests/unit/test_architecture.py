import ast
from pathlib import Path

ROOMS = [
    *(
        "errors",
        "console",
        "storage",
        "cpus",
        "config",
        "hardware",
        "corpus",
        "tokenizer",
        "sentences",
        "batching",
        "model",
        "objective",
        "optimizer",
    ),
    *("training", "decoding", "evaluation", "checkpoint", "translator", "export", "figures", "inspection", "tracking"),
    *("experiment", "report", "doctor", "cli", "__main__"),
]


def test_a_room_imports_only_rooms_to_its_left(root):
    package = root / "mt_cli"
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mt_cli"):
                names = [node.module.split(".")[1]] if "." in node.module else [alias.name for alias in node.names]
                for name in names:
                    assert ROOMS.index(name) <= ROOMS.index(room), f"{path} imports {name}"


def test_init_files_import_nothing(root):
    for path in Path(root / "mt_cli").rglob("__init__.py"):
        assert all(isinstance(node, ast.Expr) for node in ast.parse(path.read_text(encoding="utf-8")).body)
