"""Realtime full-duplex client and the benchmark around it."""
