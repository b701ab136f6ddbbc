import json, pytest, time
F=["fixtures/char_gpt_faults.py:build_moments_as_bf16","fixtures/char_gpt_faults.py:build_learning_rate_set_anew","fixtures/char_gpt_faults.py:build_head_replaced","fixtures/char_gpt_faults.py:build_decay_groups_swapped","fixtures/warmup_linear_faults.py:build_parameters_reversed","fixtures/warmup_linear_faults.py:build_schedule_after_load","fixtures/frozen_backbone_faults.py:build_frozen_in_the_optimizer","fixtures/frozen_backbone_faults.py:build_other_part_frozen","fixtures/char_gpt_faults.py:build_optimizer_not_loaded","fixtures/char_gpt_faults.py:build_head_prefix_wrong","fixtures/tied_embeddings_faults.py:build_loaded_untied","fixtures/tied_embeddings_faults.py:build_progress_off_by_one","fixtures/char_gpt_faults.py:build_async_save_aliases","fixtures/char_gpt_faults.py:build_save_draws_a_sample"]
def test_x(check):
    for f in F:
        t=time.time()
        r = check(f, steps=8, resume_at=[4], quick=True, bisect=True)
        b=r.parts["bisection"]
        print(f"{time.time()-t:.1f}s", f.split(":")[1], r.cause, "runs",b["runs"], "at", b.get("smallest_resume_at"), b.get("passes_at"), b.get("points_reason"))
        print("      ", b["proved"], b.get("sections"), b["reason"])
        for row in b["trials"]: print("           ", row)
    assert 0
