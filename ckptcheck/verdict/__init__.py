"""From runs and traces to a result: cases for the rules, their judgements, and one verdict."""
