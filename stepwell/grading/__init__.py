"""Answers judged: exact, numbers, choices, mathematics. A grader says right, wrong, or why it cannot say; never a silent 0."""
