"""What a training step is made of: its plan, the episodes that it collects, and the update."""
