"""Login for browsers, which do not send bearer tokens: the user enters the token once, and a session cookie replaces it.

Rules:

1. The cookie is a random value; the token stays on the server. Its role is looked up on each request, so revoking a token
   ends its sessions. Sessions also end with the detector.
2. There are at most ``SESSIONS_MAX`` sessions; beyond that the oldest is ended.
3. Scripts cannot read the cookie. Other sites' requests carry it only when the user follows a link (as in alerts), which
   changes nothing.
4. After the login, the user is sent to the page that the link named, if it is a path of this site.
"""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, quote

from aiohttp import web

from detector.ops.http import Answer

COOKIE = "stilltrue-session"
BODY_BYTES_MAX = 8192
SESSIONS_MAX = 1000
_OWN = re.compile(r"/[A-Za-z0-9][A-Za-z0-9_./?=&%+-]{0,500}")


class Login:
    """The sessions of browsers."""

    def __init__(
        self, *, may_read: Callable[[str, str], bool], user_of: Callable[[web.BaseRequest], str], base_path: str, secure: bool
    ) -> None:
        """``may_read``: whether a token, or the user named by a proxy (``user_of``), is a reader or an operator.

        ``secure``: the web UI is reached only by https.
        """
        self._may_read = may_read
        self._user_of = user_of
        self._path = f"{base_path}/"
        self._secure = "; Secure" if secure else ""
        self._sessions: OrderedDict[str, str] = OrderedDict()

    def allows(self, request: web.BaseRequest) -> bool:
        """Whether a request is authorized to read, by its token, its session cookie, or a proxy's user."""
        return self._may_read(self.token_of(request), self._user_of(request))

    def token_of(self, request: web.BaseRequest) -> str:
        """The token of a request or of its session; empty if there is none."""
        return bearer_of(request) or self._sessions.get(_session_of(request), "")

    async def submit(self, request: web.BaseRequest) -> Answer | None:
        """Begin a session with the token in the form; None if the token may not read."""
        body = await request.content.read(BODY_BYTES_MAX + 1)
        if len(body) > BODY_BYTES_MAX:
            raise web.HTTPRequestEntityTooLarge(BODY_BYTES_MAX, len(body))
        token = parse_qs(body.decode(errors="replace")).get("token", [""])[0].strip()
        if not self._may_read(token, ""):
            return None
        session = secrets.token_urlsafe(32)
        self._sessions[session] = token
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        cookie = f"{COOKIE}={session}; Path={self._path}; HttpOnly; SameSite=Lax{self._secure}"
        return self._redirect(self._path + wanted(request)[1:], cookie)

    def logout(self, request: web.BaseRequest) -> Answer:
        """End the session."""
        self._sessions.pop(_session_of(request), None)
        return self._redirect(f"{self._path}login", f"{COOKIE}=; Path={self._path}; Max-Age=0")

    def refuse(self, request: web.BaseRequest) -> Answer:
        """Redirect a browser to the form; tell other clients how to authenticate."""
        if "text/html" in request.headers.get("Accept", ""):
            asked = request.rel_url.raw_path_qs
            asked = asked.removeprefix(self._path[:-1]) if f"{asked}/".startswith(self._path) else asked
            return self._redirect(f"{self._path}login" + (f"?next={quote(asked, safe='/')}" if _OWN.fullmatch(asked) else ""))
        user = self._user_of(request)
        refused = f"{user} is not a reader or operator (--roles-file): " if user else ""
        text = f"{refused}show a bearer token of a reader or operator (--roles-file), or log in at {self._path}login\n"
        return Answer(status=HTTPStatus.UNAUTHORIZED, body=text, headers={"WWW-Authenticate": "Bearer"})

    @staticmethod
    def _redirect(where: str, cookie: str = "") -> Answer:
        headers = {"Location": where} | ({"Set-Cookie": cookie} if cookie else {})
        return Answer(status=HTTPStatus.SEE_OTHER, body="", headers=headers)


def wanted(request: web.BaseRequest) -> str:
    """The path to open after the login (rule 4)."""
    path = request.rel_url.query.get("next", "")
    return path if _OWN.fullmatch(path) else "/"


def bearer_of(request: web.BaseRequest) -> str:
    """The token in a request's header; empty if there is none."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _session_of(request: web.BaseRequest) -> str:
    try:
        cookies = SimpleCookie(request.headers.get("Cookie", ""))
    except CookieError:
        return ""
    return cookies[COOKIE].value if COOKIE in cookies else ""
