"""A digest names the algorithm that made it; unlike ones are never compared."""

import hashlib
from dataclasses import dataclass
from typing import Final

XXH3_128: Final = "xxh3_128"
"""XXH3 with 128 bits over the logical row-major bytes."""
LINEAR_128: Final = "linear_128"
"""Two position-keyed sums modulo 2**64 (`tensor_bytes.linear_digest`): the same on every device."""
PLAIN_DIGEST: Final = "blake2b_128"
"""BLAKE2b with 128 bits over the canonical text of a plain value."""


def plain_digest(text: str) -> bytes:
    """The 16 bytes of PLAIN_DIGEST over a canonical text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Digest:
    """128 bits that stand for a tensor's or value's content, with the algorithm that made them."""

    algorithm: str
    value: bytes

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.value.hex()}"
