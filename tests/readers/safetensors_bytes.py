"""safetensors files by hand."""

import json
from pathlib import Path
from typing import Any


def safetensors_file(path: Path, header: Any, data: bytes = b"") -> Path:
    """A file of a header (JSON value, or the text itself) and data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    """A tensor's entry in a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
