"""COMET as a score of `mt evaluate`."""

import json
import sys
from types import SimpleNamespace


def test_a_missing_comet_package_or_model_is_named(mt, trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "comet", None)
    status, _, err = mt("evaluate", "--run", trained, "--comet", "Unbabel/wmt22-comet-da")
    assert status == 2 and "pip install" in err

    class Comet:
        """A stand-in for the package."""

        load_from_checkpoint = staticmethod(lambda path: Comet)

        @staticmethod
        def download_model(name):
            if "here" not in name:
                raise OSError("no route to host")
            return name

        @staticmethod
        def predict(rows, **options):
            assert set(rows[0]) == {"src", "mt", "ref"} and len(rows) == 40
            return SimpleNamespace(system_score=0.875)

    monkeypatch.setitem(sys.modules, "comet", Comet)
    assert "not available (OSError)" in mt("evaluate", "--run", trained, "--comet", "Unbabel/none")[2]
    assert json.loads(mt("evaluate", "--run", trained, "--comet", "here", "--json")[1])["comet"] == {"score": 0.875}
