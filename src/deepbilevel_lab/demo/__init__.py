"""The embedded demonstration: real digits, half of the labels wrong, three ways of training side by side."""
