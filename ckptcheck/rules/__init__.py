"""Rules: small generators over one case, each with its card. They see nouns; they print nothing."""
