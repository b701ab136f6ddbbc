"""A tolerance is asked of every element that the second pass measures, and of the steps, not of the load."""

import pytest

from ckptcheck.finding import Verdict

# One element of the weight is off by 2 ** -10 of itself from step 5 on, in the resumed run; its gradient is fixed.
BODY = """
def build(ctx):
    model = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    resumed = ctx.workdir.parent.name.startswith("resumed")
    def step(s):
        optimizer.zero_grad()
        model.weight.grad = torch.ones(4, 4)
        optimizer.step()
        if resumed and s == 5:
            with torch.no_grad():
                model.weight[2, 3] += 2 ** -10
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step)
"""


@pytest.mark.parametrize(("tolerance", "verdict"), [
    ({}, Verdict.FAIL), ({"rtol": 2**-11}, Verdict.FAIL), ({"atol": 2**-11}, Verdict.FAIL),
    ({"rtol": 2**-9}, Verdict.PASS), ({"atol": 2**-9}, Verdict.PASS),
    ({"tolerances": {"param": (2**-9, 0.0), "grad": (0.0, 2**-11)}}, Verdict.PASS),
    ({"rtol": 2**-9, "tolerances": {"param": (0.0, 2**-11)}}, Verdict.FAIL),
])  # fmt: skip
def test_one_element_beyond_it_fails_and_none_passes(tolerance, verdict, target, check):
    result = check(target(BODY), steps=6, resume_at=[3], **tolerance)
    assert result.verdict is verdict
    if verdict is Verdict.FAIL:
        assert (result.first_divergence.step, result.first_divergence.parameter) == (5, "weight")
    asked = {role: {"rtol": pair[0], "atol": pair[1]} for role, pair in tolerance.get("tolerances", {}).items()}
    assert result.parts["policy"].get("roles", {}) == asked
