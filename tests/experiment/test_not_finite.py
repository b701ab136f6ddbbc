"""Runs that are NaN tell nothing, and a load that raises is told by its own lines."""

from collections.abc import Callable

from ckptcheck.finding import Result, Verdict
from ckptcheck.reports.page import Page
from ckptcheck.reports.text import render

TRAINING = """
def build(ctx):
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    made = [0]
    def step(s):
        made[0] += 1
        optimizer.zero_grad()
        loss = (model(torch.randn(4, 6)) * 0.9 ** made[0]).square().mean()
        (loss * (float("nan") if s >= FIRST else 1)).backward()
        optimizer.step()
    def save(path):
        torch.save([model.state_dict(), optimizer.state_dict(), torch.get_rng_state()], path)
    def load(path):
        saved = torch.load(path)
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        torch.set_rng_state(saved[2])
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, save=save, load=load)
"""


def trained(first: int | float) -> str:
    return f"FIRST = {first}\n{TRAINING}"


def test_a_fault_that_nan_hides_is_no_pass(target: Callable[[str], str], check: Callable[..., Result]) -> None:
    result = check(target(trained(3)), steps=6, resume_at=[4], quick=True, require=["CK501"])
    assert result.verdict is Verdict.INCONCLUSIVE
    assert (result.cause.code, result.first_divergence) == ("CK501", None)
    said = " ".join(render(result, Page()).split())
    assert said.startswith("INCONCLUSIVE non finite (CK501)")
    assert "from step 3 on 2 of 2 parameters and 4 state tensors are not finite, in both runs: nothing can" in said
    finite = check(target(trained(9), "finite"), steps=6, resume_at=[4], quick=True)
    assert (finite.verdict, finite.cause.code) == (Verdict.FAIL, "CK606")
    assert all(one.code != "CK501" for one in (*finite.findings, *finite.not_judged))


def test_where_only_the_last_of_several_resume_points_is_nan_that_one_tells_nothing(
    target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    healthy = trained(6).replace("0.9 ** made[0]", "1")
    result = check(target(healthy), steps=8, resume_at=[2, 6], quick=True, require=["CK4"])
    assert result.verdict is Verdict.FAIL, "contracts were demanded, and none was given"
    assert render(result, Page()).startswith("FAIL  demanded and not judged: CK401")
    assert {one.severity.value for one in result.findings if one.code == "CK501"} == {"error"}, "the weightiest"


def test_a_load_that_raises_is_told_by_its_own_lines(
    target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    raising = trained(9).replace("saved = torch.load(path)", "saved = torch.load(path)[3]")
    result = check(target(raising), steps=4, quick=True)
    said = render(result, Page())
    assert "(while loading the checkpoint)" in " ".join(said.split())
    assert "saved = torch.load(path)[3]\n" in said
    assert "IndexError: list index out of range\n" in said
    assert "To do        mend your load" in said
    assert "command" not in said
