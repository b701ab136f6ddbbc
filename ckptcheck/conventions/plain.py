"""The convention of last resort: a training script's own dict, a bare state_dict, a pickled module, loose files."""

from collections.abc import Mapping, Sequence

from ckptcheck.conventions.bulk import is_bulk
from ckptcheck.conventions.files import by_stem, files_of, keeps_order
from ckptcheck.conventions.parts import Parts, checkpoint
from ckptcheck.conventions.sorting import is_optimizer, is_scheduler, is_state_dict, sort_dict
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTree
from ckptcheck.state.tree import is_long_plain


class Plain:
    """Claims everything; what it cannot explain stands in section "extra"."""

    name = "plain"

    def claims(self, raw: RawTree) -> bool:
        """Always."""
        return True

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """Sort by keys and content."""
        files = files_of(raw)
        ordered = all(keeps_order(raw, path) for path in files) if files else keeps_order(raw, "")
        return checkpoint(raw, self.name, sort_root(by_stem(files) if files else raw.root, ordered=ordered), names)


def sort_root(root: Raw, *, ordered: bool = True) -> Parts:
    """Sort a root value of any kind."""
    if is_optimizer(root):
        return Parts(optimizers={"optimizer": root}, ordered=ordered)
    if is_state_dict(root):
        return Parts(model=root, ordered=ordered)
    if is_scheduler(root):
        return Parts(schedulers={"scheduler": root}, ordered=ordered)
    if isinstance(root, list | tuple) and not is_long_plain(root) and not is_bulk(root):
        root = {f"[{place}]": one for place, one in enumerate(root)}
    if isinstance(root, Mapping):
        return sort_dict(root, ordered=ordered)
    return Parts(extra={"root": root}, unrecognised=["root"], ordered=ordered)
