"""Flat dicts with dotted keys: a training state in a safetensors file, flattened as torch's checkpoint planner does.

    model.layer.weight                        optimizer.param_groups.0.lr
    optimizer.state.layer.weight.exp_avg      scheduler.last_epoch

What is no tensor stands in the safetensors metadata as JSON text under such a key, or is a 0-d tensor.
"""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ckptcheck.conventions.files import keeps_order
from ckptcheck.conventions.flat_optimizer import GROUPS, STATE
from ckptcheck.conventions.labels import OPTIMIZER_KEYS
from ckptcheck.conventions.parts import checkpoint
from ckptcheck.conventions.progress import PROGRESS_KEYS
from ckptcheck.conventions.sorting import MODEL_KEYS, sort_dict
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import MAX_RAW_DEPTH, Raw, RawTensor, RawTree

MAX_JSON_CHARS: Final = 1 << 20
_NUMBERS: Final = {"float64": "<d", "int64": "<q", "bool": "?"}
"""Dtypes in which a 0-d tensor holds a number of Python's without loss."""


class Flat:
    """Told by dotted keys of an optimizer at the root."""

    name = "flat"

    def claims(self, raw: RawTree) -> bool:
        """Whether all keys are dotted, and some are of an optimizer's state or groups."""
        root = raw.root
        if not isinstance(root, Mapping) or not root or not all(isinstance(key, str) for key in root):
            return False
        return all("." in key for key in root) and any(_is_optimizers(key) for key in root)

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """Nest the keys again and explain the whole as a training script's own dict."""
        values = {**raw.root, **_texts(raw.facts.get("metadata"))}
        parts = sort_dict(nested(values), ordered=keeps_order(raw, ""))
        return checkpoint(raw, self.name, parts, names)


def nested(values: Mapping[str, Raw]) -> dict[str, Raw]:
    """The nested dict whose flattening this is. A model's names keep their dots."""
    found: dict[str, Raw] = {}
    names = _model_names(values)
    lengths = frozenset(map(len, names))
    for key, value in values.items():
        head, _, rest = key.partition(".")
        if head in MODEL_KEYS:
            found.setdefault(head, {})[rest] = value
        elif _is_optimizers(key) and rest.startswith(STATE):
            name, path = _split(rest.removeprefix(STATE), names, lengths)
            _put(found, [head, "state", name, path], value)
        else:
            _put(found, key.split("."), _number(value))
    for head in OPTIMIZER_KEYS & set(found):
        found[head]["param_groups"] = found[head].get("param_groups") or []
    return {key: _lists(value) if key not in MODEL_KEYS else value for key, value in found.items()}


def _is_optimizers(key: str) -> bool:
    head, _, rest = key.partition(".")
    return head in OPTIMIZER_KEYS and rest.startswith((STATE, GROUPS))


def _model_names(values: Iterable[str]) -> frozenset[str]:
    return frozenset(key.partition(".")[2] for key in values if key.partition(".")[0] in MODEL_KEYS)


def _split(path: str, names: frozenset[str], lengths: frozenset[int]) -> tuple[str, str]:
    """Parameter name and state key: at the longest known name, else at the last dot. `lengths` are those of `names`."""
    end = len(path)
    while (end := path.rfind(".", 0, end)) > 0:
        if end in lengths and path[:end] in names:
            return path[:end], path[end + 1 :]
    head, _, rest = path.partition(".")
    if head.isdecimal():
        return head, rest
    name, _, key = path.rpartition(".")
    return name, key


def _put(found: dict[str, Any], path: Sequence[str], value: Raw) -> None:
    """Set a value in nested dicts; one that lies where a dict has to be stays under its longer key."""
    here = found
    for place, part in enumerate(path[:-1]):
        inner = here.setdefault(part, {})
        if not isinstance(inner, dict) or place >= MAX_RAW_DEPTH // 2:
            here[".".join(path[place:])] = value
            return
        here = inner
    here[path[-1]] = value


def _lists(value: Raw) -> Raw:
    """Dicts keyed "0", "1", ... as lists again. The state of an optimizer stays keyed."""
    if not isinstance(value, dict):
        return value
    inner = {key: one if key == "state" else _lists(one) for key, one in value.items()}
    is_list = bool(inner) and set(inner) == set(map(str, range(len(inner))))
    return [inner[str(place)] for place in range(len(inner))] if is_list else inner


def _number(value: Raw) -> Raw:
    """A 0-d tensor as the number that it must have been, where its dtype is Python's own; its bytes are read."""
    if isinstance(value, RawTensor) and not value.spec.shape and (code := _NUMBERS.get(value.spec.dtype)):
        return struct.unpack(code, value.fetch())[0]
    return value


def _texts(metadata: Any) -> dict[str, Raw]:
    """Values in the metadata whose keys are dotted, or count progress, and whose text is JSON."""
    found: dict[str, Raw] = {}
    for key, text in metadata.items() if isinstance(metadata, Mapping) else ():
        is_ours = "." in key or key in PROGRESS_KEYS
        if is_ours and isinstance(text, str) and len(text) <= MAX_JSON_CHARS:
            found[key] = _parsed(text)
    return found


def _parsed(text: str) -> Raw:
    """The value of a short JSON text, the text itself where it is none or nests deep."""
    if text.count("[") + text.count("{") > MAX_RAW_DEPTH // 2:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
