"""Our own store: a manifest and payloads; `ckptcheck.store.read` gives its training state by name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError, StoreError
from ckptcheck.readers.folders.folder_files import at_top
from ckptcheck.readers.folders.sidecar import label_prefix
from ckptcheck.readers.reader import Listing
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import Source, said_of
from ckptcheck.readers.tensor_bytes import Contiguous, watched
from ckptcheck.state.digest import XXH3_128, Digest
from ckptcheck.state.raw import Defect, Flaw, Member, RawTensor, RawTree, Storage, Watch
from ckptcheck.store import manifest_file
from ckptcheck.store.layout import MANIFEST, VERSION, is_payload_name
from ckptcheck.store.payload import StoredTensor
from ckptcheck.store.read import OpenStore, is_store, open_store

OPEN_STORE: Final = "store"
"""Under this name `facts` has the `OpenStore`."""


class StoreFolder:
    """A folder that `ckptcheck save` wrote; root: the tensors of each payload by role and key. Container "store"."""

    def claims(self, listing: Listing) -> bool:
        """A manifest of ours, or payloads of ours that lack it."""
        top = at_top(listing)
        is_file = (listing.path / MANIFEST).is_file()  # opening a pipe would wait for a writer
        return (is_file and is_store(listing.path)) or (MANIFEST not in top and any(map(is_payload_name, top)))

    def read(self, listing: Listing, reading: Reading) -> RawTree:
        """Describe the store. Members verify the manifest's digests; one that needs torch is not judged."""
        prefix = label_prefix(reading, listing.path)
        store = _opened(listing)
        root: dict[str, dict[str, RawTensor]] = {}
        members: list[Member] = []
        nbytes = listing.files[MANIFEST].stat().st_size
        for role, tensors in store.tensors.items():
            file = store.manifest.payloads[role].file
            source = reading.pool.open(listing.path / file, prefix + file)
            nbytes += source.nbytes
            root[role] = {key: _tensor(source, one) for key, one in tensors.items()}
            members += _members(source, tensors)
        return RawTree(
            path=listing.path,
            container="store",
            root=root,
            nbytes=nbytes,
            members=tuple(members),
            defects=tuple(reading.defects),
            facts=_facts(store),
            check_unchanged=reading.pool.check_unchanged,
        )


def _opened(listing: Listing) -> OpenStore:
    """The store; a payload that the manifest names and that is not there is a half save or half copy."""
    flaw = Flaw.INCOMPLETE if MANIFEST not in listing.files else Flaw.UNREADABLE
    try:
        manifest = manifest_file.read(listing.path)
        lacking = [one.file for one in manifest.payloads.values() if one.file not in listing.files]
        flaw = Flaw.INCOMPLETE if lacking else flaw
        return open_store(listing.path)
    except StoreError as trouble:
        if "install a newer one" in str(trouble):
            raise CheckpointError(str(trouble)) from None
        raise DamagedCheckpointError(str(trouble), flaw) from None


def _tensor(source: Source, stored: StoredTensor) -> RawTensor:
    return RawTensor(
        spec=stored.spec,
        read_into=Contiguous(source, stored.begin_bytes),
        storage=Storage(source.label, stored.key, stored.spec.nbytes),
    )


def _members(source: Source, tensors: Mapping[str, StoredTensor]) -> Iterator[Member]:
    for key, stored in tensors.items():
        window = source.window(stored.begin_bytes, stored.spec.nbytes)
        has_checksum = stored.digest.algorithm == XXH3_128
        check = _Verify(window, key, stored.digest if has_checksum else None)
        yield Member(source.label, key, window.nbytes, has_checksum, check)


@dataclass(frozen=True, slots=True, eq=False)
class _Verify:
    """Reads a tensor's bytes in blocks and holds them against the manifest's digest, where there is one to judge."""

    source: Source
    key: str
    digest: Digest | None

    def __call__(self, watch: Watch | None = None) -> Defect | None:
        from xxhash import xxh3_128

        found = xxh3_128()
        try:
            for block in watched(self.source, watch):
                if self.digest:
                    found.update(block)
        except CheckpointError as trouble:
            return Defect(Flaw.UNREADABLE, self.source.label, f"{self.key}: {said_of(trouble, self.source.path)}")
        if self.digest and found.digest() != self.digest.value:
            said = f"{self.key}: its bytes do not have the digest that {MANIFEST} promises"
            return Defect(Flaw.CHECKSUM, self.source.label, said)
        return None


def _facts(store: OpenStore) -> dict[str, Any]:
    manifest = store.manifest
    return {
        "checksums": XXH3_128,
        "format_version": VERSION,
        "step": manifest.step,
        "versions": dict(manifest.versions),
        OPEN_STORE: store,
    }
