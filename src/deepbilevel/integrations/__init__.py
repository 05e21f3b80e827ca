"""Trainers of others that take a group as their step: Lightning, Hugging Face, scikit-learn; a file and extra each."""
