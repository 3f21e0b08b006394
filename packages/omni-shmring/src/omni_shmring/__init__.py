"""Tensors and Python values between processes of one host, over shared memory."""
