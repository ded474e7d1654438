"""The tag that proves a stamp to come from the fleet (rule 9): a keyed BLAKE2b sum over the stamp and the call it is for.

A tagged stamp is ``source;incarnation;number;colour;floor;tag``, the tag 32 hex digits. It covers the method and whether the
stamp is a request's or a reply's, so that one which was overheard proves nothing about another call.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest

KEY_LENGTH_MIN = 16
"""Characters in a key at the least."""
KEYS_MAX = 16
_TAG_BYTES = 16
_KEY_BYTES_MAX = 64


class StampKeyError(ValueError):
    """Keys that prove nothing; one line, which never holds a key."""


class StampTags:
    """Signs with the first of the keys, and accepts the tags of all: so a key is replaced in two steps."""

    __slots__ = ("_begun",)

    def __init__(self, keys: Sequence[str]) -> None:
        """Raises :class:`StampKeyError`."""
        if not 1 <= len(keys) <= KEYS_MAX:
            raise StampKeyError(f"1 to {KEYS_MAX} keys are needed, not {len(keys)}")
        for number, key in enumerate(keys, 1):
            if len(key) < KEY_LENGTH_MIN:
                raise StampKeyError(f"key {number} has {len(key)} characters; at least {KEY_LENGTH_MIN} are needed")
        self._begun = [_begun(key) for key in keys]

    def sign(self, text: str, method: str, *, reply: bool) -> str:
        """The stamp ``text`` of a call of ``method`` with its tag."""
        tag = self._begun[0].copy()
        tag.update(_covered(text, method, reply))
        return f"{text};{tag.hexdigest()}"

    def verify(self, tagged: str, method: str, *, reply: bool) -> str | None:
        """The stamp without its tag; None when no key made the tag for this call."""
        text, _, given = tagged.rpartition(";")
        covered = _covered(text, method, reply)
        for begun in self._begun:
            tag = begun.copy()
            tag.update(covered)
            if compare_digest(tag.hexdigest().encode(), given.encode("utf-8", "replace")):
                return text
        return None


def _begun(key: str) -> blake2b:
    secret = key.encode()
    if len(secret) > _KEY_BYTES_MAX:
        secret = blake2b(secret).digest()
    return blake2b(key=secret, digest_size=_TAG_BYTES, person=b"stilltrue-stamp")


def _covered(text: str, method: str, reply: bool) -> bytes:
    return f"{'reply' if reply else 'request'};{method};{text}".encode("utf-8", "surrogatepass")
