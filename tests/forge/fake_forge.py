"""A forge that speaks the APIs of GitHub, GitLab and Gitea over HTTP on loopback: one repository, with the rules that clients trip over.

It has pages, rate limits, refused tokens, redirects to other hosts, answers that are too long or never end, and state machines as the
real ones: GitLab refuses a status that the commit has already, GitHub and Gitea refuse a second pull request of a branch.
"""

import json
import re
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from manifests.values.notices import ForgeType

PROJECT = "shop/manifests"
TOKEN = "glpat-a-token-of-the-fake"
USER = {"login": "reconciler-bot", "username": "reconciler-bot", "id": 7, "type": "User"}

Answer = tuple[int, Any, dict[str, str]]


@dataclass
class Repository:
    """What the forge keeps. `faults` are answers for the next requests, before anything is done; `lost` do the work and answer
    nothing. It takes no comment on merge requests that are `locked`."""

    dialect: ForgeType
    statuses: list[dict[str, Any]] = field(default_factory=list)
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    faults: list[Answer] = field(default_factory=list)
    lost: int = 0
    locked: set[int] = field(default_factory=set)
    page: int = 2
    may_ask_for_user: bool = True
    seen: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    url: str = ""

    # --- what others do ---------------------------------------------------------------------------------------------

    def comment_by(self, number: int, body: str, login: str, id_: int, kind: str = "User") -> None:
        author = {"login": login, "username": login, "id": id_, "type": kind}
        listed = self.comments.setdefault(number, [])
        listed.append({"id": 1000 + len(listed), "body": body, "user": author, "author": author})

    def push_request(self, number: int, commit: str, branch: str, source: str | None = PROJECT) -> None:
        """An open merge request; `source` is the repository of its commits, None = it is gone."""
        if self.dialect is ForgeType.GITLAB:
            source_id = None if source is None else 1 if source == PROJECT else 99
            item = {
                "iid": number,
                "sha": commit,
                "source_branch": branch,
                "target_branch": "main",
                "source_project_id": source_id,
                "target_project_id": 1,
                "author": {"username": "ada"},
            }
        else:
            head = {"sha": commit, "ref": branch, "repo": None if source is None else {"full_name": source}}
            item = {"number": number, "head": head, "base": {"ref": "main"}, "user": {"login": "ada"}}
        self.requests.append({**item, "title": f"change {number}", "html_url": "https://f/1", "web_url": "https://f/1"})

    # --- the API ------------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, list[str]], headers: dict[str, str], body: Any) -> Answer:
        self.seen.append((method, path, headers, body))
        if self.faults:
            return self.faults.pop(0)
        if not self._authorized(headers):
            return 401, {"message": "Bad credentials"}, {}
        for pattern, method_, handle in self._routes():
            match = re.fullmatch(pattern, path)
            if match and method_ == method:
                status, value = handle(*match.groups(), body)
                return self._paged(status, value, query, path) if method == "GET" else (status, value, {})
        return 404, {"message": "404 Not Found"}, {}

    def _authorized(self, headers: dict[str, str]) -> bool:
        if self.dialect is ForgeType.GITLAB:
            return headers.get("private-token") == TOKEN
        scheme = "Bearer" if self.dialect is ForgeType.GITHUB else "token"
        return headers.get("authorization") == f"{scheme} {TOKEN}"

    def _routes(self) -> list[tuple[str, str, Callable[..., tuple[int, Any]]]]:
        if self.dialect is ForgeType.GITLAB:
            root = f"/api/v4/projects/{PROJECT}"
            return [
                ("/api/v4/user", "GET", self._user),
                (f"{root}/statuses/(\\w+)", "POST", self._set_status),
                (f"{root}/repository/commits/(\\w+)/statuses", "GET", self._list_statuses),
                (f"{root}/merge_requests/(\\d+)/notes", "GET", self._list_comments),
                (f"{root}/merge_requests/(\\d+)/notes", "POST", self._add_comment),
                (f"{root}/merge_requests/(\\d+)/notes/(\\d+)", "PUT", lambda _, id_, body: self._edit(id_, body)),
                (f"{root}/merge_requests", "GET", lambda _: (200, self.requests)),
                (f"{root}/merge_requests", "POST", self._open),
            ]
        root = f"{'/api/v3' if self.dialect is ForgeType.GITHUB else '/api/v1'}/repos/{PROJECT}"
        return [
            (f"{root.split('/repos')[0]}/user", "GET", self._user),
            (f"{root}/statuses/(\\w+)", "POST", self._set_status),
            (f"{root}/issues/(\\d+)/comments", "GET", self._list_comments),
            (f"{root}/issues/(\\d+)/comments", "POST", self._add_comment),
            (f"{root}/issues/comments/(\\d+)", "PATCH", self._edit),
            (f"{root}/pulls", "GET", lambda _: (200, self.requests)),
            (f"{root}/pulls", "POST", self._open),
        ]

    def _paged(self, status: int, value: Any, query: dict[str, list[str]], path: str) -> Answer:
        all_at_once = self.dialect is ForgeType.GITEA and path.endswith("/comments")
        if not isinstance(value, list) or all_at_once:
            return status, value, {}
        page = int(query.get("page", ["1"])[0])
        shown = value[(page - 1) * self.page : page * self.page]
        more = len(value) > page * self.page
        # An address on another host: a client that follows it would send its token there.
        return status, shown, {"Link": f'<http://192.0.2.1/steal?page={page + 1}>; rel="next"'} if more else {}

    def _user(self, _body: Any) -> tuple[int, Any]:
        return (200, USER) if self.may_ask_for_user else (403, {"message": "Resource not accessible by integration"})

    def _set_status(self, commit: str, body: Any) -> tuple[int, Any]:
        context = body.get("context") or body.get("name")
        before = [row for row in self.statuses if (row["commit"], row["context"]) == (commit, context)]
        if self.dialect is ForgeType.GITLAB and before and before[-1]["state"] == body["state"] == "pending":
            reason = 'Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via "enqueue")'
            return 400, {"message": reason}
        if len(body["description"]) > 140 and self.dialect is ForgeType.GITHUB:
            return 422, {
                "message": "Validation Failed",
                "errors": ["description is too long (maximum is 140 characters)"],
            }
        row = {
            "commit": commit,
            "context": context,
            "state": body["state"],
            "description": body["description"],
            "id": len(self.statuses) + 1,
            "status": body["state"],
        }
        self.statuses.append(row)
        return 201, row

    def _list_statuses(self, commit: str, _body: Any) -> tuple[int, Any]:
        return 200, [row for row in self.statuses if row["commit"] == commit]

    def _list_comments(self, number: str, _body: Any) -> tuple[int, Any]:
        return 200, self.comments.get(int(number), [])

    def _add_comment(self, number: str, body: Any) -> tuple[int, Any]:
        if int(number) in self.locked:
            return 403, {"message": "Unable to create comment because issue is locked."}
        user = USER if self.may_ask_for_user else {**USER, "login": "github-actions[bot]", "type": "Bot"}
        listed = self.comments.setdefault(int(number), [])
        comment = {"id": 1 + sum(map(len, self.comments.values())), "body": body["body"], "user": user, "author": user}
        listed.append(comment)
        return 201, comment

    def _edit(self, id_: str, body: Any) -> tuple[int, Any]:
        for comment in [comment for listed in self.comments.values() for comment in listed]:
            if comment["id"] == int(id_):
                comment["body"] = body["body"]
                return 200, comment
        return 404, {"message": "Not Found"}

    def _open(self, body: Any) -> tuple[int, Any]:
        branch = body.get("head") or body.get("source_branch")
        gitlab = self.dialect is ForgeType.GITLAB
        for item in self.requests:
            if (item.get("source_branch") if gitlab else item["head"]["ref"]) == branch:
                return (422 if self.dialect is ForgeType.GITHUB else 409), {"message": "it exists already"}
        self.push_request(len(self.requests) + 1, "c" * 40, branch)
        self.requests[-1]["title"] = body["title"]
        return 201, self.requests[-1]


@contextmanager
def serving(dialect: ForgeType):
    """The forge on a free port of loopback; its `url` is that of its web pages."""
    repository = Repository(dialect)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            size = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size)) if size else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, value, extra = repository.answer(
                self.command, unquote(parts.path), parse_qs(parts.query), headers, body
            )
            if repository.lost and self.command != "GET":
                repository.lost -= 1
                self.close_connection = True
                return
            text = value if isinstance(value, bytes) else json.dumps(value).encode()
            with suppress(OSError):
                self.send_response(status)
                for name, content in extra.items():
                    self.send_header(name, content)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_PUT = _serve

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    repository.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield repository
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
