"""What a world is grown from: services and bodies, and the recipes that mix them by seed."""
