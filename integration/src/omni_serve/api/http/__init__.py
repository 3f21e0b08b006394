"""OpenAI-style HTTP endpoints, one module a family."""
