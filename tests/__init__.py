"""Tests; the run-time type checker takes whole numbers where a float is asked for, as Python does."""

from beartype import BeartypeConf, beartype

typechecked = beartype(conf=BeartypeConf(is_pep484_tower=True))
