"""One process per stage: what it is told, what it answers, and the loop around its part."""
