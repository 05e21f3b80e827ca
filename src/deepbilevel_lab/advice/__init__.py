"""What to train with: short trials of a few methods on somebody's own noisy labels, and one page of advice."""
