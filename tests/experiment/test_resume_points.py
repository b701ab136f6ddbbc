"""Every resume point is tried, and a second resume in a row from what the first resumed run saved."""

import pytest

from ckptcheck.finding import Verdict

BODY = """
def build(ctx):
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    resumes = []
    def step(s):
        optimizer.zero_grad()
        loss = model(torch.full((1, 2), 1.0 / s)).square().sum()
        loss.backward()
        if {fault}:
            loss = loss + 1
        optimizer.step()
        return loss
    def save(path):
        torch.save([model.state_dict(), resumes], path)
    def load(path):
        saved = torch.load(path)
        model.load_state_dict(saved[0])
        resumes[:] = [*saved[1], len(path.name)]
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, save=save, load=load)
"""
FAULTS = {
    "none": ("False", Verdict.PASS),
    "in every resumed run": ("resumes", Verdict.FAIL),
    "in the run that is resumed at the second point": ("'resumed@4' in str(ctx.workdir)", Verdict.FAIL),
    "in the run that is resumed twice": ("len(resumes) == 2", Verdict.FAIL),
}


@pytest.mark.parametrize(("fault", "verdict"), FAULTS.values(), ids=FAULTS)
def test_a_fault_fails_in_whichever_resumed_run_it_is(fault, verdict, target, check):
    result = check(target(BODY.replace("{fault}", fault)), steps=6, resume_at=[2, 4], quick=True)
    assert result.verdict is verdict
