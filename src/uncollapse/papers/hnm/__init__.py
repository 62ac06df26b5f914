"""Items of *Mathematical justification of hard negative mining via isometric approximation*."""
