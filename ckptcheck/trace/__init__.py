"""Recording a trajectory: what is sampled in a step, when, and the trace file. Standard library and torch only."""
