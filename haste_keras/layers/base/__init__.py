"""What the layers and their cells share."""
