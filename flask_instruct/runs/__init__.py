"""The durable half: runs as rows, and the worker that carries them out. Knows nothing of HTML."""
