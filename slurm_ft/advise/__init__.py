"""How often to save: the formula, and the numbers that it needs as this cluster shows them."""
