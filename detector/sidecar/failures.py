"""Why a connection of a relay failed, and what to change."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

INBOUND, OUTBOUND = "inbound", "outbound"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayFailure:
    """The ``direction`` of the calls (inbound: to the program; outbound: by it), the ``peer``, the reason, and a known fix."""

    direction: str
    peer: str
    text: str
    fix: str | None = None


_Reasons = tuple[tuple[tuple[str, ...], str, str], ...]
_PLAINTEXT = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_REJECTED = ("ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE", "ALERT_UNSUPPORTED_CERTIFICATE")

_TRUST = "give it the CA of that certificate (a calling sidecar: --upstream-tls-ca-file), and call by a name in the certificate"

_OF_CALLERS: _Reasons = (
    (_PLAINTEXT, "it does not speak TLS", "let it use TLS (a calling sidecar: --upstream-tls)"),
    (
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE",),
        "it presents no client certificate",
        "give it one that a CA in --inbound-tls-client-ca-file has signed (a calling sidecar: --upstream-tls-cert-file)",
    ),
    (
        ("CERTIFICATE_VERIFY_FAILED",),
        "its client certificate is not accepted",
        "a CA in --inbound-tls-client-ca-file must have signed it",
    ),
    (
        _REJECTED,
        "it does not accept the certificate in --inbound-tls-cert-file",
        _TRUST,
    ),
)
_OF_UPSTREAMS: _Reasons = (
    (_PLAINTEXT, "it does not speak TLS", "leave out --upstream-tls"),
    (
        ("CERTIFICATE_VERIFY_FAILED",),
        "its certificate is not accepted",
        "its CA belongs into --upstream-tls-ca-file, and the host of --upstream must be a name in the certificate",
    ),
    (
        ("ALERT_CERTIFICATE_REQUIRED", "ALERT_HANDSHAKE_FAILURE"),
        "it requires a client certificate",
        "--upstream-tls-cert-file and --upstream-tls-key-file",
    ),
    (_REJECTED, "it does not accept our certificate", "a CA that it trusts must have signed --upstream-tls-cert-file"),
)
_SPEAKS_TLS = {
    (INBOUND, True): "let it speak plaintext, or set --inbound-tls-cert-file and --inbound-tls-key-file",
    (INBOUND, False): "let the program speak plaintext on --app: the sidecar does TLS (--inbound-tls-cert-file)",
    (OUTBOUND, True): "let the program call --outbound in plaintext: the sidecar does TLS (--upstream-tls)",
    (OUTBOUND, False): "--upstream-tls",
}


def speaks_tls(direction: str, peer: str, *, calls: bool) -> RelayFailure:
    """The peer sent a TLS record where plaintext is spoken. ``calls``: it is the caller."""
    text = "it speaks TLS where the sidecar expects plaintext"
    return RelayFailure(direction=direction, peer=peer, text=text, fix=_SPEAKS_TLS[direction, calls])


def caller_refused(peer: str, error: OSError) -> RelayFailure:
    """The handshake with an inbound caller failed."""
    text, fix = _explained(error, _OF_CALLERS)
    return RelayFailure(direction=INBOUND, peer=peer, text=f"TLS handshake: {text}", fix=fix)


def caller_left(peer: str) -> RelayFailure:
    """An inbound caller left during the handshake, as gRPC's C core does if it does not accept the certificate."""
    text = "TLS handshake: it left without a reason; it may not accept the certificate in --inbound-tls-cert-file"
    return RelayFailure(direction=INBOUND, peer=peer, text=text, fix=_TRUST)


def unreachable(direction: str, peer: str, error: Exception) -> RelayFailure:
    """A server cannot be connected to, or refuses the handshake."""
    text, fix = _explained(error, _OF_UPSTREAMS)
    if direction == INBOUND and isinstance(error, ConnectionRefusedError):
        fix = "none while the program starts (a probe came before it); else --app must be where the program listens"
    return RelayFailure(direction=direction, peer=peer, text=f"{peer} cannot be reached: {text or 'timed out'}", fix=fix)


def left_unanswered(direction: str, peer: str, error: Exception | None, *, tls: bool) -> RelayFailure:
    """A server ended the connection before it sent anything. ``tls``: we spoke TLS."""
    if error is not None:
        text, fix = _explained(error, _OF_UPSTREAMS)
        if fix is not None:
            return RelayFailure(direction=direction, peer=peer, text=f"TLS handshake: {text}", fix=fix)
    if tls:
        fix = "if it requires a client certificate that its CA has signed: --upstream-tls-cert-file and --upstream-tls-key-file"
    else:
        fix = f"if it speaks TLS: {_SPEAKS_TLS[direction, False]}"
    return RelayFailure(direction=direction, peer=peer, text="it closed the connection without an answer", fix=fix)


def _explained(error: Exception, reasons: _Reasons) -> tuple[str, str | None]:
    """Return why, and what to change if that is known."""
    if isinstance(error, ssl.SSLError):
        for marks, text, fix in reasons:
            if any(mark in (error.reason or "") for mark in marks):
                detail = getattr(error, "verify_message", "")
                return f"{text} ({detail})" if detail else text, fix
    return str(error), None
