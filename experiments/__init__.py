"""One file per figure or table of the thesis: ``python -m experiments list``."""
