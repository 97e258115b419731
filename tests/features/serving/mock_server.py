"""A server with the interface of `mt serve` and a fake model behind it, for tests of the page."""

import argparse
import asyncio
from pathlib import Path

import fake_model
import uvicorn
from starlette.applications import Starlette
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

PAGE = Path(__file__).parents[3] / "mt_cli/features/serving/page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
LIMITS = {"max_characters": 20000, "max_alternatives": 10, "max_file_bytes": 33554432}


def model(name, directions, bleu, chrf, count, default=False):
    directions = [{"source": source, "target": target} for source, target in directions]
    scores = [{"split": "test", "bleu": bleu, "chrf": chrf, "num_sentences": count}]
    described = {"name": name, "default": default, "engine": "mt", "directions": directions, "scores": scores}
    return {**described, "updated_at": "2026-11-27T08:00:00Z", "alternatives": True, "alignment": True}


MODELS = [
    model("captions", fake_model.DIRECTIONS, 39.2, 61.0, 1000, default=True),
    model("subtitles", [("en", "de")], 33.7, 57.4, 2500),
]


def describe(sentence, source, target, num_alternatives, details):
    before, text, after = sentence
    translation, confidence, alternatives = fake_model.translate_sentence(text, source, target)
    source_words, target_words = fake_model.words(text), fake_model.words(translation)
    described = {
        "source": {"text": text, "before": before, "after": after},
        "target": {"text": translation, "before": before, "after": after},
        "score": -0.31,
        "alternatives": [{"text": text, "score": -0.44 - i} for i, text in enumerate(alternatives[:num_alternatives])],
        "lost_spans": ["{name}"] if "{name}" in text else [],
        "reordered_spans": [],
    }
    if details:
        described |= {"source_words": source_words, "target_words": target_words, "confidence": confidence}
        described |= {"alignment": fake_model.align(source_words, target_words)}
    return described


def error(status, message, **headers):
    return JSONResponse({"error": message}, status, headers)


class MockServer:
    """Answers by `delay` seconds late; `key` is the only key, or None."""

    def __init__(self, delay=0.0, key=None):
        self.delay, self.key, self.files = delay, key, {}

    async def index(self, request):
        return FileResponse(PAGE / "index.html")

    async def models(self, request):
        described = [(code, *language) for code, language in fake_model.LANGUAGES.items()]
        names = ("code", "name", "native_name", "right_to_left")
        languages = [dict(zip(names, language, strict=True)) for language in described]
        answer = {"models": MODELS, "languages": languages, "limits": LIMITS, "key_required": self.key is not None}
        return JSONResponse({**answer, "file_types": [".txt", ".docx", ".po", ".html"]})

    async def translate(self, request):
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return error(403, "The key is missing or wrong.")
        asked = await request.json()
        await asyncio.sleep(self.delay)
        text, target = asked["text"], asked.get("target", "de")
        if len(text) > LIMITS["max_characters"]:
            return error(413, "The text is too long.")
        is_auto = asked.get("source", "auto") == "auto"
        source = fake_model.detect(text) if is_auto else asked["source"]
        if (source, target) not in fake_model.DIRECTIONS:
            return error(400, f"No model translates from {source} into {target}.")
        options = (source, target, asked.get("alternatives", 0), asked.get("details", False))
        parts = [describe(sentence, *options) for sentence in fake_model.sentences(text)]
        whole = "".join(side["before"] + side["text"] + side["after"] for side in (part["target"] for part in parts))
        detected = {"language": source, "confidence": 93.1} if is_auto else None
        answer = {"model": asked.get("model") or "captions", "source": source, "target": target, "detected": detected}
        return JSONResponse({**answer, "translations": [{"text": whole, "sentences": parts}]})

    async def detect(self, request):
        asked = await request.json()
        return JSONResponse([{"language": fake_model.detect(asked["q"]), "confidence": 93.1}])

    async def translate_file(self, request):
        async with request.form() as form:
            text, name = (await form["file"].read()).decode("utf-8"), form["file"].filename
            source, target = form["source"], form["target"]
        await asyncio.sleep(self.delay)
        if "broken" in name:
            return error(400, "The file is damaged.")
        source = fake_model.detect(text) if source == "auto" else source
        lines = [fake_model.translate_sentence(line, source, target)[0] for line in text.split("\n")]
        token = f"{len(self.files)}.{name.rsplit('.', 1)[-1]}"
        self.files[token] = "\n".join(lines)
        return JSONResponse({"translatedFileUrl": f"http://127.0.0.1:5000/download_file/{token}"})

    async def download_file(self, request):
        text = self.files.pop(request.path_params["name"], None)
        return error(404, "No such file.") if text is None else Response(text, media_type="application/octet-stream")

    def application(self):
        routes = [
            Route("/", self.index),
            Route("/v1/models", self.models),
            Route("/v1/translate", self.translate, methods=["POST"]),
            Route("/detect", self.detect, methods=["POST"]),
            Route("/translate_file", self.translate_file, methods=["POST"]),
            Route("/download_file/{name}", self.download_file),
            Mount("/page", StaticFiles(directory=PAGE)),
        ]
        return with_headers(Starlette(routes=routes))


def with_headers(application):
    """The application with the headers of `mt serve`."""
    extra = [(b"content-security-policy", POLICY.encode()), (b"x-content-type-options", b"nosniff")]

    async def wrapped(scope, receive, send):
        async def send_more(message):
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        await application(scope, receive, send_more)

    return wrapped


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--key")
    options = parser.parse_args()
    server = MockServer(options.delay, options.key)
    uvicorn.run(server.application(), host="127.0.0.1", port=options.port, log_level="warning")
