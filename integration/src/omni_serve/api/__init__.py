"""The HTTP and WebSocket front of a deployment. It speaks wires; the engine does the work."""
