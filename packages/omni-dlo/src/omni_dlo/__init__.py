"""Layerwise weight offload: streams blocks from host to device, exact to the bit."""
