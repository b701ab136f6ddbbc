import pytest

from ckptcheck.conventions.wrappers import Stripper


@pytest.mark.parametrize(
    ("names", "stripped", "found"),
    [
        (["module.a.weight", "module.b"], ["a.weight", "b"], ("module.",)),
        (["module.module.a", "module.module.b"], ["a", "b"], ("module.",)),
        (["module.a", "head.b"], ["module.a", "head.b"], ()),
        (["encoder.module.a"], ["encoder.module.a"], ()),
        (["_orig_mod.a", "_orig_mod.b"], ["a", "b"], ("_orig_mod.",)),
        (["a._orig_mod.w", "b.w"], ["a.w", "b.w"], ("_orig_mod.",)),
        (["_orig_mod.module.a"], ["a"], ("module.", "_orig_mod.")),
        (["module._orig_mod.a"], ["a"], ("module.", "_orig_mod.")),
        (
            ["_fsdp_wrapped_module.l.0._checkpoint_wrapped_module.w"],
            ["l.0.w"],
            ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module."),
        ),
        (["_forward_module.a"], ["a"], ("_forward_module.",)),
        (["module.a", "module.b", "n_averaged"], ["a", "b", "n_averaged"], ("module.",)),
        (["_orig_mod.a", "a"], ["_orig_mod.a", "a"], ()),
        (["module."], ["module."], ()),
        (["module.module.a", "module.b"], ["module.a", "b"], ("module.",)),
        (["module.module.", "module.module.a"], ["module.", "module.a"], ("module.",)),
        (["my_orig_mod.a"], ["my_orig_mod.a"], ()),
        ([], [], ()),
    ],
)
def test_wrappers_are_stripped_only_where_they_surely_are_wrappers(
    names: list[str], stripped: list[str], found: tuple[str, ...]
) -> None:
    strip = Stripper(names)
    assert [strip.strip(name) for name in names] == stripped
    assert strip.found == found


def test_names_of_a_hundred_thousand_wrappers_are_stripped() -> None:
    wrappers = "module." * 100_000
    assert [Stripper([f"{wrappers}a", f"{wrappers}b"]).strip(f"{wrappers}{end}") for end in "ab"] == ["a", "b"]


def test_a_name_that_was_not_in_the_model_is_stripped_as_its_names_are() -> None:
    assert Stripper(["module.a", "module.b"]).strip("module.c") == "c"
    assert Stripper(["a"]).strip("module.c") == "module.c"
