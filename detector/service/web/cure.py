"""The pages and the API for cures: preview, confirmation, and the cure itself. Only for operators.

Rules:

1. With roles, the client needs an operator's token or session, or a trusted proxy that names an operator. Without roles,
   cures are offered only on loopback. The API previews a cure also where none is allowed.
2. A form must contain the secret of the page before it, which other sites cannot read. The API accepts only
   ``application/json``, which forms of other sites cannot send.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web

from detector.ops.http import Answer
from detector.service.cure.cures import CureRefusedError, Cures, Refusal
from detector.service.documents import written_cure
from detector.service.grpc_api.roles import Role, Roles, describe_client
from detector.service.protobuf_messages import plan_to_wire

BODY_BYTES_MAX = 4096
_STATUSES = {
    Refusal.NOT_ALLOWED: HTTPStatus.FORBIDDEN,
    Refusal.NOT_NOW: HTTPStatus.CONFLICT,
    Refusal.UNKNOWN: HTTPStatus.NOT_FOUND,
}
TokenOf = Callable[[web.BaseRequest], str]
Render = Callable[..., Answer]


class CurePages:
    """Answers requests for cures."""

    def __init__(
        self, *, cures: Cures, render: Render, token_of: TokenOf, user_of: TokenOf, roles: Roles | None, on_loopback: bool,
        base_path: str,
    ) -> None:  # fmt: skip
        """``render`` renders a page; ``token_of`` returns a request's token, ``user_of`` the user that a proxy names."""
        self._cures = cures
        self._render = render
        self._token_of = token_of
        self._user_of = user_of
        self._roles = roles
        self._on_loopback = on_loopback
        self._base_path = base_path
        self._secret = secrets.token_urlsafe(32)

    def offered_to(self, request: web.BaseRequest) -> bool:
        """Whether cures are allowed at all, and to this client (rule 1)."""
        return self._cures.allowed and self._is_operator(request)

    def _is_operator(self, request: web.BaseRequest) -> bool:
        if self._roles is None:
            return self._on_loopback
        return Role.OPERATOR in self._roles.of(frozenset(), self._token_of(request), self._user_of(request))

    async def page(self, id: str, request: web.BaseRequest) -> Answer:
        """The confirmation page with a preview; a submitted form starts the cure."""
        if not self.offered_to(request):
            return self._refused(id, "only an operator may end an incident, and only with --allow-cure", HTTPStatus.FORBIDDEN)
        try:
            if request.method == "POST":
                await self._check_form(request)
                await self._cures.cure(id, self._who(request))
                where = f"{self._base_path}/incidents/{id}"
                return Answer(status=HTTPStatus.SEE_OTHER, body="", headers={"Location": where})
            plan = await self._preview(id)
        except CureRefusedError as refused:
            return self._refused(id, str(refused), _STATUSES[refused.refusal])
        return self._render("cure", f"End {id}?", incident_id=id, plan=plan, secret=self._secret, refused="")

    async def answer(self, id: str, request: web.BaseRequest) -> Answer:
        """The API: GET previews a cure, POST starts it."""
        if not self._is_operator(request):
            return _json({"error": "only an operator may end an incident"}, HTTPStatus.FORBIDDEN)
        try:
            if request.method == "POST":
                if request.content_type != "application/json":
                    raise web.HTTPUnsupportedMediaType(reason="the body must be application/json, such as {}")
                outcome = await self._cures.cure(id, self._who(request))
                del outcome  # the incident shows the result later
                return _json({"incident": id, "text": "aborted; the incident shows whether it has ended"}, HTTPStatus.ACCEPTED)
            plan = await self._preview(id)
        except CureRefusedError as refused:
            return _json({"error": str(refused)}, _STATUSES[refused.refusal])
        return _json(plan, HTTPStatus.OK)

    async def _preview(self, id: str) -> dict[str, Any]:
        """The preview document, which the page uses, too."""
        plan = await self._cures.plan(id)
        return {**written_cure(plan_to_wire(plan, text=plan.text())), "possible": plan.possible}

    async def _check_form(self, request: web.BaseRequest) -> None:
        """Check the form's secret (rule 2)."""
        body = await request.content.read(BODY_BYTES_MAX + 1)
        given = parse_qs(body[:BODY_BYTES_MAX].decode(errors="replace")).get("secret", [""])[0]
        if len(body) > BODY_BYTES_MAX or not hmac.compare_digest(given.encode(), self._secret.encode()):
            raise web.HTTPForbidden(reason="this form has expired, or the detector was restarted: reload the page")

    def _refused(self, id: str, text: str, status: HTTPStatus) -> Answer:
        page = self._render("cure", id, incident_id=id, plan=None, secret="", refused=text)
        return Answer(body=page.body, content_type=page.content_type, status=status)

    def _who(self, request: web.BaseRequest) -> str:
        user = self._user_of(request)
        names = frozenset({f"user {user}"}) if user else frozenset[str]()
        return describe_client(names, self._token_of(request), request.remote or "an unknown address")


def _json(value: Any, status: HTTPStatus) -> Answer:
    return Answer(body=json.dumps(value, ensure_ascii=False) + "\n", content_type="application/json", status=status)
