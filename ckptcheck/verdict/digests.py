"""Short digests of content for listings: of a tensor's logical bytes in chunks, of a plain value's text."""

import hashlib
from typing import Any, Final

from ckptcheck.state.digest import PLAIN_DIGEST, XXH3_128, plain_digest
from ckptcheck.state.tensor import TensorRef

CHUNK_BYTES: Final = 1 << 22
DIGITS: Final = 16
"""Hex digits that a listing shows of a digest."""


def content_digest(ref: TensorRef, buffer: bytearray) -> str:
    """The algorithm and the first digits of the digest of a tensor's bytes, as "xxh3_128:0123456789abcdef".

    `buffer` is scratch memory that the tensor is read through. Raises DamagedCheckpointError where bytes are missing.
    """
    algorithm, hasher = _hasher()
    view, total = memoryview(buffer), ref.spec.nbytes
    for start in range(0, total, len(buffer)):
        part = view[: min(len(buffer), total - start)]
        ref.read_into(start, part)
        hasher.update(part)
    return f"{algorithm}:{hasher.hexdigest()[:DIGITS]}"


def text_digest(text: str) -> str:
    """The digest of a text that is too long to show."""
    return f"{PLAIN_DIGEST}:{plain_digest(text).hex()[:DIGITS]}"


def _hasher() -> tuple[str, Any]:
    try:
        import xxhash
    except ImportError:
        return PLAIN_DIGEST, hashlib.blake2b(digest_size=16)
    return XXH3_128, xxhash.xxh3_128()
