"""A run of training: what is trained, how, and how it goes on after an interruption."""
