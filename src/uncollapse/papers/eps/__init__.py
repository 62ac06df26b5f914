"""Items of *Reducing class collapse in metric learning with easy positive sampling*."""
