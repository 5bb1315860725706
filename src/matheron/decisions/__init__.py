"""What to do next with what is known and what is not."""

from matheron.decisions.active import most_informative

__all__ = ["most_informative"]
