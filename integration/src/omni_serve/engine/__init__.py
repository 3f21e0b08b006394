"""The orchestrator: stage processes kept alive, sessions and requests led through them."""
