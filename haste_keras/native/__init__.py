"""The libraries: finding and loading them, what their cells are, and calls into them."""
