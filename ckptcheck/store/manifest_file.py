"""The manifest as text, and back with every type checked."""

import json
from pathlib import Path
from typing import Any, Final

from ckptcheck import __version__
from ckptcheck.errors import StoreError
from ckptcheck.state.digest import Digest
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorSpec
from ckptcheck.state.training_state import SECTIONS, Scalar
from ckptcheck.store import files
from ckptcheck.store.decoding import decode_number
from ckptcheck.store.encoding import encode_number
from ckptcheck.store.fields import Fields, parse
from ckptcheck.store.layout import FORMAT, MANIFEST, MODEL, ROLES, VERSION, is_payload_name
from ckptcheck.store.manifest import (
    GroupRecord,
    Manifest,
    ObjectRecord,
    OptimizerRecord,
    ParameterRecord,
    PayloadRecord,
    TensorRecord,
    checksum,
)

MAX_MANIFEST_BYTES: Final = 1 << 30
"""A manifest of a million tensors has a quarter of this."""
_HEAD: Final = f'{{"format":"{FORMAT}","version":'
_STATE: Final = ',"state":'
_PRESENCES: Final = ("none", "zero", "nonzero")


def claims(folder: Path) -> bool:
    """Whether the folder holds a manifest that begins as ours do."""
    try:
        with open(folder / MANIFEST, "rb") as file:
            return file.read(len(_HEAD)) == _HEAD.encode()
    except OSError:
        return False


def to_text(manifest: Manifest) -> str:
    """The manifest's text: ASCII, one line."""
    state = json.dumps(_to_json(manifest), separators=(",", ":"), allow_nan=False)
    return f'{_HEAD}{VERSION},"tool":"{__version__}","digest":"{checksum(state)}"{_STATE}{state}}}\n'


def _to_json(manifest: Manifest) -> dict[str, Any]:
    payloads = {
        role: {
            "file": payload.file,
            "size_bytes": payload.size_bytes,
            "tensors": {key: _tensor_to_json(record) for key, record in payload.tensors.items()},
        }
        for role, payload in manifest.payloads.items()
    }
    return {
        "step": manifest.step,
        "payloads": payloads,
        "parameters": {name: _shallow(record) for name, record in manifest.parameters.items()},
        "buffers": manifest.buffers,
        "optimizers": [_optimizer_to_json(record) for record in manifest.optimizers],
        "sections": {
            section: {label: _shallow(record) for label, record in objects.items()}
            for section, objects in manifest.sections.items()
        },
        "module_states": manifest.module_states,
        "rng": manifest.rng,
        "modes": manifest.modes,
        "flags": manifest.flags,
        "versions": manifest.versions,
    }


def _shallow(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _optimizer_to_json(record: OptimizerRecord) -> dict[str, Any]:
    groups = None if record.groups is None else [_shallow(group) for group in record.groups]
    return {**_shallow(record), "groups": groups}


def _tensor_to_json(record: TensorRecord) -> dict[str, Any]:
    found: dict[str, Any] = {"dtype": record.spec.dtype, "shape": record.spec.shape, "digest": str(record.digest)}
    if record.stride is not None:
        found["stride"] = record.stride
    if record.value is not None:
        found["value"] = encode_number(record.value)
    return found


def read(folder: Path) -> Manifest:
    """The manifest of a store. Raises StoreError for a missing, damaged, newer or hostile one."""
    path = folder / MANIFEST
    try:
        content = files.read_inside(folder, MANIFEST, MAX_MANIFEST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(_no_manifest(folder)) from None
    except OSError as trouble:
        raise StoreError(f"{path}: cannot be read ({trouble.strerror})") from trouble
    whole = parse(content, str(path))
    if whole.values.get("format") != FORMAT:
        raise StoreError(f"{path}: not a training state that ckptcheck saved")
    version = whole.integer("version")
    if version < 1:
        raise StoreError(f"{path}: there is no format version {version}: the file is damaged")
    if version > VERSION:
        raise StoreError(
            f"{path}: written in format version {version}, this ckptcheck reads up to {VERSION}: install a newer one"
        )
    text = content.decode("ascii", "replace").rstrip("\n")
    if checksum(text.partition(_STATE)[2][:-1]) != whole.text("digest"):
        raise StoreError(f"{path}: its text does not have the digest that it promises: damaged, or edited by hand")
    return _manifest(whole.fields("state"))


def _no_manifest(folder: Path) -> str:
    if not folder.exists():
        return f"{folder}: no such folder: nothing was saved there"
    if not folder.is_dir():
        return f"{folder}: a file, and a stored training state is a folder"
    return f"{folder}: no {MANIFEST} in it: not a training state that ckptcheck saved, or its first save never ended"


def _manifest(state: Fields) -> Manifest:
    payloads = {role: _payload(payload) for role, payload in state.fields("payloads").each()}
    if not set(payloads) <= set(ROLES):
        raise StoreError(f"{state.where}: unknown payloads {sorted(set(payloads) - set(ROLES))}: the file is damaged")
    manifest = Manifest(
        step=None if state.any("step") is None else state.integer("step"),
        payloads=payloads,
        parameters={name: _parameter(one) for name, one in state.fields("parameters").each()},
        buffers=state.texts("buffers"),
        optimizers=tuple(_optimizer(one) for one in state.listed("optimizers")),
        sections={
            section: {label: ObjectRecord(one.text("class_name"), one.any("state")) for label, one in objects.each()}
            for section, objects in state.fields("sections").each()
        },
        module_states=state.fields("module_states").values,
        rng=state.fields("rng").values,
        modes={name: state.fields("modes").flag(name) for name in state.fields("modes").values},
        flags={name: _scalar(state.fields("flags"), name) for name in state.fields("flags").values},
        versions={name: state.fields("versions").text(name) for name in state.fields("versions").values},
    )
    _check_whole(manifest, state.where)
    return manifest


def _check_whole(manifest: Manifest, where: str) -> None:
    held = manifest.payloads[MODEL].tensors if MODEL in manifest.payloads else {}
    missing = [name for name in (*manifest.parameters, *manifest.buffers) if name not in held]
    if missing:
        raise StoreError(f"{where}: {missing[0]!r} is listed and no payload holds it: the file is damaged")
    unknown = sorted(set(manifest.sections) - set(SECTIONS))
    if unknown:
        raise StoreError(f"{where}, sections: unknown {unknown}: the file is damaged")


def _payload(one: Fields) -> PayloadRecord:
    file = one.text("file")
    if not is_payload_name(file):
        raise StoreError(f"{one.where}: {file!r} is no payload's name: the file is damaged, or was made to mislead")
    tensors = {key: _tensor(record) for key, record in one.fields("tensors").each()}
    return PayloadRecord(file, one.integer("size_bytes"), tensors)


def _tensor(one: Fields) -> TensorRecord:
    spec = TensorSpec(one.text("dtype"), one.integers("shape"))
    if spec.dtype not in ITEMSIZE_BYTES:
        raise StoreError(f"{one.where}: unknown dtype {spec.dtype!r}: the file is damaged, or from a newer torch")
    stride = one.integers("stride") if "stride" in one.values else None
    if stride is not None and not is_dense(spec.shape, stride):
        raise StoreError(f"{one.where}: stride {stride} does not fit shape {spec.shape}: the file is damaged")
    algorithm, _, digits = one.text("digest").partition(":")
    try:
        digest = Digest(algorithm, bytes.fromhex(digits))
    except ValueError:
        raise StoreError(f"{one.where}: {digits!r} is no digest: the file is damaged") from None
    try:
        value = decode_number(one.values["value"]) if "value" in one.values else None
    except (LookupError, TypeError, ValueError):
        raise StoreError(f"{one.where}: its value is no number: the file is damaged") from None
    return TensorRecord(spec, digest, stride, value)


def is_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether the strides, in elements, lay a tensor out without holes and overlaps, dimensions in any order."""
    if len(shape) != len(stride):
        return False
    expected = 1
    for step, size in sorted((step, size) for step, size in zip(stride, shape, strict=True) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True


def _scalar(fields: Fields, key: str) -> Scalar:
    value = fields.any(key)
    if not isinstance(value, bool | int | float | str):
        raise StoreError(f"{fields.where}, {key}: a plain value was promised, {type(value).__name__} found")
    return value


def _parameter(one: Fields) -> ParameterRecord:
    presence, gradient = one.text("presence"), one.any("gradient")
    if presence not in _PRESENCES or (presence == "none") != (gradient is None):
        raise StoreError(f"{one.where}: gradient presence {presence!r} does not fit: the file is damaged")
    return ParameterRecord(one.flag("requires_grad"), one.texts("aliases"), presence, gradient)


def _optimizer(one: Fields) -> OptimizerRecord:
    groups = None if one.any("groups") is None else tuple(map(_group, one.listed("groups")))
    return OptimizerRecord(
        class_name=one.text("class_name"),
        groups=groups,
        state=one.fields("state").values,
        orphans=one.fields("orphans").values,
        unnamed=one.fields("unnamed").values,
        loose=one.any("loose"),
        rest=one.any("rest"),
    )


def _group(one: Fields) -> GroupRecord:
    return GroupRecord(one.texts("members"), one.any("hyperparameters"))
