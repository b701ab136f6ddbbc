"""Which files of a folder belong to a checkpoint, told by their names, or by their first bytes."""

import re
from pathlib import PurePosixPath
from typing import Final

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.reader import Listing
from ckptcheck.store.layout import MANIFEST, is_payload_name

TENSOR_SUFFIXES: Final = frozenset({
    ".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".pkl", ".pickle", ".th", ".tar", ".nemo", ".zip",
})  # fmt: skip
"""Files that hold tensors or pickles; each is then claimed by its content."""

OWN_SUFFIXES: Final = frozenset({".pt", ".pth", ".ckpt", ".safetensors"})
"""Suffixes of checkpoints alone."""

OTHER_SUFFIXES: Final = frozenset({
    ".py", ".md", ".txt", ".log", ".out", ".err", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".yaml", ".yml",
    ".toml", ".cfg", ".ini", ".csv", ".tsv", ".jsonl", ".sh", ".html", ".npz", ".npy", ".h5", ".hdf5", ".onnx", ".gguf",
    ".model", ".ipynb", ".whl", ".lock", ".gz", ".parquet", ".arrow", ".db", ".sqlite", ".distcp", ".symlink",
})  # fmt: skip
"""Never opened. What has another suffix, or none, is taken in where its first bytes are a checkpoint's."""

STATE_JSON: Final = frozenset({"trainer_state.json", "config.json", "generation_config.json", "adapter_config.json"})
"""JSON of checkpoints alone: damage there is damage of the checkpoint."""

TEXT_JSON: Final = frozenset({
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.json", "chat_template.json", "preprocessor_config.json", "processor_config.json", "README.json",
})  # fmt: skip
"""JSON that says how text or images are prepared; nothing that training changes."""

DCP_METADATA: Final = ".metadata"
DCP_SUFFIX: Final = ".distcp"
"""The description of a distributed checkpoint, and its slices."""

LEGACY_MAGIC: Final = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")
"""The pickled number that torch's files began with before they were zips."""

MAX_CHANGED: Final = 2
"""Bytes of that number that may have changed in a file that once began with it."""
MAX_MARKED: Final = 100
"""Sub-folders of a kind of their own in one folder."""
MAX_TOLD: Final = 1000
"""Names of left-out files that a tree's facts keep."""

INDEX: Final = re.compile(r".+\.(safetensors|bin)\.index\.json")
SHARD: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{2,6})-of-(?P<count>\d{2,6})\.(?P<kind>safetensors|bin)")
PIECE: Final = re.compile(r"shard-(?P<rank>\d{2,6})-(?P<stem>.+)-\d{2,6}-of-\d{2,6}\.safetensors")
"""One rank's pieces of tensors, as the HF storage writer of torch.distributed.checkpoint names the file."""

NUMBERED: Final = re.compile(
    r"(?P<family>checkpoint|ckpt|global_step|iter|iteration|step|epoch|ep)[-_=]?(?P<number>\d+)(?:\.ckpt|\.dir)?"
)
"""A folder that is one checkpoint of a run."""
RECIPE_STATE: Final = "recipe_state/recipe_state.pt"
"""What torchtune keeps beside the folders of its epochs, for a resume from the newest of them."""
TEMPORARY: Final = re.compile(r"tmp-.+|.+\.tmp|tmp_.+|.+\.partial")


def is_candidate(label: str) -> bool:
    """Whether the name alone says that a file may belong to a checkpoint."""
    path = PurePosixPath(label)
    return path.suffix in TENSOR_SUFFIXES or (path.suffix == ".json" and path.name not in TEXT_JSON)


def is_weights(label: str) -> bool:
    """Whether the name alone says that a file holds tensors or pickles."""
    return PurePosixPath(label).suffix in TENSOR_SUFFIXES


def is_stored_state(label: str) -> bool:
    """Whether the name alone says that a file holds tensors, pickles, or a part of a distributed checkpoint."""
    return is_weights(label) or label.endswith(DCP_SUFFIX) or PurePosixPath(label).name == DCP_METADATA


def visible(listing: Listing) -> list[str]:
    """The files of a folder but those in hidden sub-folders (".git", ".cache"), in the listing's order."""
    return [
        label for label in listing.files if not any(part.startswith(".") for part in PurePosixPath(label).parts[:-1])
    ]


def at_top(listing: Listing) -> list[str]:
    """The files of the folder itself."""
    return [label for label in listing.files if "/" not in label]


def marked_folders(labels: list[str]) -> list[str]:
    """Sub-folders with a file that marks a checkpoint of a kind of its own: DCP, a store; outer ones first."""
    found = {folder for folder, _, name in (label.rpartition("/") for label in labels) if folder and _marks(name)}
    if len(found) > MAX_MARKED:
        raise CheckpointError(f"holds {len(found)} folders that are checkpoints: name one of them: {min(found)}, ...")
    return sorted(found)


def _marks(name: str) -> bool:
    return name in (DCP_METADATA, MANIFEST) or name.endswith(DCP_SUFFIX) or is_payload_name(name)


def looks_like_tensors(start: bytes) -> bool:
    """Whether a file of an unknown name begins as torch's zip and legacy files do, or as safetensors."""
    if start.startswith((b"PK\x03\x04", LEGACY_MAGIC)):
        return True
    return start[8:10] in (b'{"', b"{}") and 2 <= int.from_bytes(start[:8], "little") <= 100_000_000


def legacy_bytes_changed(start: bytes) -> int:
    """How many of the first bytes of a file of torch's from before 1.6 have changed; 0 where it begins otherwise."""
    changed = sum(one != other for one, other in zip(start, LEGACY_MAGIC, strict=False))
    return changed if len(start) >= len(LEGACY_MAGIC) and changed <= MAX_CHANGED else 0
