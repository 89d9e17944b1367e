"""Process rewards for solutions of several steps, on a task whose every step is checked."""
