"""What the hub of the tests answers: addresses, redirects, headers and errors, as its clients decide on them.

The places in `huggingface_hub` are: `utils/_http.py:hf_raise_for_status` (errors are known by the header
`X-Error-Code`), `file_download.py:get_hf_file_metadata` (headers of files; redirects on the same host are followed,
a redirect to another host holds the headers itself), `file_download.py:http_get` (ranges), `hf_api.py` (the rest).
"""

import json
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, unquote, urlsplit

_HEXADECIMAL = set("0123456789abcdef")
_OPERATIONS = {"revision", "tree"}


@dataclass
class Request:
    """A request that was made."""

    method: str
    path: str
    status: int = 0
    num_sent: int = 0
    """Bytes of the body that were sent."""
    range: str | None = None
    has_token: bool = False
    from_cdn: bool = False


@dataclass
class Reply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_file: bool = False
    """Whether the body is the content of a file, of which ranges can be requested."""


def answer(hub, request, token):
    """Reply to a request without faults."""
    address = urlsplit(request.path)
    if request.from_cdn:
        return _from_cdn(hub, address.path)
    if token is not None and token not in hub.tokens:
        return error(401, None, "Invalid credentials in Authorization header")
    if address.path == "/api/agent-harnesses":  # For the name in `User-Agent`; the client keeps the reply for a day.
        return to_json({"standardEnvVars": [], "harnesses": {}})
    place = parse_path(address.path)
    if place is None:
        return error(404, None, "Not Found")
    kind, name, operation, rest = place
    if (kind, name) in hub.renamed:
        location = request.path.replace(f"/{name}", "/" + hub.renamed[kind, name], 1)
        return Reply(307, {"Location": location}, f"Temporary Redirect. Redirecting to {location}".encode())
    repository = hub.repositories(kind).get(name)
    if refusal := _refusal(repository, operation, token):
        return refusal
    revision = rest[0] if rest else "main"
    commit = repository.find(revision)
    if commit is None:
        return error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
    path, query = "/".join(rest[1:]), parse_qs(address.query)
    if operation in ("resolve", "resolve-cache"):
        return resolve(hub, repository, commit, path, is_redirected=operation == "resolve-cache")
    if operation == "tree":
        entries = repository.tree(commit, path, _is_true(query, "recursive"))
        missing = error(404, "EntryNotFound", f"{path} does not exist on this revision")
        return missing if entries is None else to_json(entries)
    info = repository.info(commit, "blobs" in query)
    keys = {"_id", "id", *query.get("expand", info)}
    return to_json({key: value for key, value in info.items() if key in keys})


def _from_cdn(hub, path):
    """An LFS file, by the SHA-256 in its address, which stands for a signature: no token is needed."""
    _, kind, oid, *_ = path.split("/")
    commits = [commit for repository in hub.repositories(kind).values() for commit in repository.commits.values()]
    for blob in (blob for commit in commits for blob in commit.files.values()):
        if blob.sha256 == oid:
            return Reply(200, {"ETag": f'"{oid}"'}, blob.content, is_file=True)
    return error(403, None, "AccessDenied")


def _refusal(repository, operation, token):
    """The error for a repository that does not exist or cannot be read with a token, or None.

    The hub does not say whether a private repository exists. Information and listings of a gated one are public.
    """
    has_access = repository is not None and token in repository.readers
    if repository is None or (repository.private and not has_access):
        # Over HTTP, clients know the 401 only by its code; over HTTPS, also by its address.
        if token is None:
            return error(401, "RepoNotFound", "Invalid username or password.")
        return error(404, "RepoNotFound", "Repository not found")
    if repository.gated and not has_access and operation in ("resolve", "resolve-cache"):
        return error(403 if token else 401, "GatedRepo", f"Access to {repository.id} is restricted.")
    return None


def _is_true(query, name):
    return query.get(name, ["false"])[0].lower() == "true"


def resolve(hub, repository, commit, path, is_redirected):
    """The reply for a file: first a redirect, whose headers say what the client's cache needs to know."""
    blob = commit.files.get(path)
    headers = {"X-Repo-Commit": commit.oid}
    if blob is None:
        missing = error(404, "EntryNotFound", "Entry not found")
        return Reply(404, headers | missing.headers, missing.body)
    if is_redirected:
        return Reply(200, headers | {"ETag": f'"{blob.etag}"'}, blob.content, is_file=True)
    headers |= {"X-Linked-Etag": f'"{blob.etag}"', "X-Linked-Size": str(len(blob.content))}
    quoted = quote(path)
    if blob.is_lfs:
        location = f"{hub.cdn}/{repository.kind}/{blob.sha256}/{repository.id}/{quoted}"
        return Reply(302, headers | {"Location": location})
    location = f"/api/resolve-cache/{repository.kind}/{repository.id}/{commit.oid}/{quoted}"
    return Reply(307, headers | {"Location": location})


def parse_path(path):
    """Kind, id, operation and what follows it of a request for a repository, or None.

    Ids have one or two parts, so what comes after them says where they end.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[:2] == ["api", "resolve-cache"]:
        kind, parts = parts[2], parts[3:]
        end = 1 if len(parts[1]) == 40 and set(parts[1]) <= _HEXADECIMAL else 2
        return kind, "/".join(parts[:end]), "resolve-cache", parts[end:]
    if parts[0] == "api" and len(parts) > 2 and parts[1] in ("datasets", "models"):
        kind, parts = parts[1], parts[2:]
        end = 1 if len(parts) == 1 or parts[1] in _OPERATIONS else 2
        operation = parts[end] if len(parts) > end else "revision"
        return (kind, "/".join(parts[:end]), operation, parts[end + 1 :]) if operation in _OPERATIONS else None
    kind, parts = ("datasets", parts[1:]) if parts[0] == "datasets" else ("models", parts)
    if "resolve" not in parts[1:3]:
        return None
    end = parts.index("resolve", 1)
    return kind, "/".join(parts[:end]), "resolve", parts[end + 1 :]


def ranged(reply, text):
    """The part of a file that a request asks for."""
    size = len(reply.body)
    headers = {**reply.headers, "Accept-Ranges": "bytes"}
    if not text or not text.startswith("bytes="):
        return Reply(200, headers, reply.body, True)
    first, last = text.removeprefix("bytes=").split("-")
    begin = int(first) if first else max(size - int(last), 0)
    end = min(int(last) + 1, size) if first and last else size
    if begin >= end:
        return Reply(416, {**headers, "Content-Range": f"bytes */{size}"})
    return Reply(206, {**headers, "Content-Range": f"bytes {begin}-{end - 1}/{size}"}, reply.body[begin:end], True)


def to_json(value):
    return Reply(200, {"Content-Type": "application/json; charset=utf-8"}, json.dumps(value).encode())


def error(status, code, message):
    """An error as the client knows it: by its headers."""
    headers = {"X-Error-Message": message, "Content-Type": "application/json; charset=utf-8"}
    return Reply(status, headers | ({"X-Error-Code": code} if code else {}), json.dumps({"error": message}).encode())
