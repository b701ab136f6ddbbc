"""A target whose factory is not there: what it offers instead, and when it is rather a script."""

import pytest

from ckptcheck.errors import TargetError
from ckptcheck.experiment.target import load_factory

OFFERS, SCRIPT = "; it has build_model", "; a script as it is takes --run and --resume instead"


@pytest.mark.parametrize(("is_file", "content", "ending"), [
    (True, "x = 1\n", SCRIPT), (True, "def build_model(ctx): pass\n", ""),
    (False, "x = 1\n", ""), (False, "def build_model(ctx): pass\n", ""),
])  # fmt: skip
def test_a_file_that_offers_no_factory_may_be_a_script(tmp_path, monkeypatch, is_file, content, ending):
    name = f"offered_{is_file}_{len(content)}".lower()
    path = tmp_path / f"{name}.py"
    path.write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TargetError) as raised:
        load_factory(f"{path if is_file else name}:train")
    offered = OFFERS if "build_model" in content else ""
    assert str(raised.value).endswith(f"no factory 'train'{offered}: define train(ctx) -> ckptcheck.Run{ending}")
