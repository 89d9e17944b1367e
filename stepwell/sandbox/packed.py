"""LiveCodeBench's packed tests: base64 of zlib of a pickle of one text, unpacked without the pickle machine.

A pickle is a program; loading one from a file of others runs it. This one needs to say a single text, so its few instructions are read
and everything else is refused.
"""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib

from stepwell.errors import DataError

__all__ = ["unpack"]

_MOST_BYTES = 2**30
_TEXT = frozenset({"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"})
_HARMLESS = frozenset({"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"})


def unpack(packed: str, *, most_bytes: int = _MOST_BYTES) -> str:
    """The text inside.

    Raises:
        DataError: It is not packed that way, holds anything but one text, or is longer than `most_bytes` unpacked.
    """
    try:
        stream = zlib.decompressobj()
        data = stream.decompress(base64.b64decode(packed, validate=True), most_bytes)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise DataError(f"tests: they are not packed as LiveCodeBench packs them (base64 of zlib): {error}.") from None
    if stream.unconsumed_tail:
        raise DataError(f"tests: they are more than {most_bytes} bytes unpacked; raise the limit only for a file that you trust.")
    return _text(data)


def _text(data: bytes) -> str:
    found: list[str] = []
    try:
        for code, argument, _ in pickletools.genops(data):
            if code.name in _TEXT and isinstance(argument, str):
                found.append(argument)
            elif code.name not in _HARMLESS:
                raise DataError(f"tests: the pickle inside holds the instruction {code.name}; one text is all that is read from a pickle.")
    except (ValueError, IndexError) as error:
        raise DataError(f"tests: what is packed is no pickle of a text: {error}.") from None
    if len(found) != 1:
        raise DataError(f"tests: the pickle inside holds {len(found)} texts; one is expected.")
    return found[0]
