"""Test-time scaling: more is sampled, and a judge or a vote says which answer is given."""
