"""The tag that proves that a stamp comes from the fleet (protocol rule 9): a keyed BLAKE2b hash of the stamp and its call.

A tagged stamp is ``source;incarnation;number;colour;floor;tag``, the tag 32 hex digits. The hash covers the method and whether
the stamp is a request's or a reply's, so that an intercepted stamp cannot be used for another call.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest

KEY_LENGTH_MIN = 16
"""The minimum length of a key, in characters."""
KEYS_MAX = 16
_TAG_BYTES = 16
_KEY_BYTES_MAX = 64


class StampKeyError(ValueError):
    """Invalid keys. The message is one line and never contains a key."""


class StampTags:
    """Signs with the first key and accepts the tags of all keys, so that a key can be replaced in two steps."""

    __slots__ = ("_hashes",)

    def __init__(self, keys: Sequence[str]) -> None:
        """Raises :class:`StampKeyError` for too few, too many or too short keys."""
        if not 1 <= len(keys) <= KEYS_MAX:
            raise StampKeyError(f"1 to {KEYS_MAX} keys are needed, not {len(keys)}")
        for number, key in enumerate(keys, 1):
            if len(key) < KEY_LENGTH_MIN:
                raise StampKeyError(f"key {number} has {len(key)} characters; at least {KEY_LENGTH_MIN} are needed")
        self._hashes = [_keyed_hash(key) for key in keys]

    def sign(self, text: str, method: str, *, reply: bool) -> str:
        """Append the tag to the stamp ``text`` of a call of ``method``."""
        tag = self._hashes[0].copy()
        tag.update(_signed_bytes(text, method, reply))
        return f"{text};{tag.hexdigest()}"

    def verify(self, tagged: str, method: str, *, reply: bool) -> str | None:
        """Return the stamp without its tag, or None if the tag was not made for this call with one of the keys."""
        text, _, given = tagged.rpartition(";")
        signed = _signed_bytes(text, method, reply)
        for keyed in self._hashes:
            tag = keyed.copy()
            tag.update(signed)
            if compare_digest(tag.hexdigest().encode(), given.encode("utf-8", "replace")):
                return text
        return None


def _keyed_hash(key: str) -> blake2b:
    secret = key.encode()
    if len(secret) > _KEY_BYTES_MAX:
        secret = blake2b(secret).digest()
    return blake2b(key=secret, digest_size=_TAG_BYTES, person=b"stilltrue-stamp")


def _signed_bytes(text: str, method: str, reply: bool) -> bytes:
    return f"{'reply' if reply else 'request'};{method};{text}".encode("utf-8", "surrogatepass")
