"""The scheduling cycles of pod groups and of trees of them."""
