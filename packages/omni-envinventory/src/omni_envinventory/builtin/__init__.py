"""Inventories that come with the package."""
