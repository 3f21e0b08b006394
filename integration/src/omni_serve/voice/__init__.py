"""The embedded voice: four parts that hear, write down, answer and speak, each behind a small protocol."""
