"""Reviewed inventory of environment variables: scan, check, collect, document."""
