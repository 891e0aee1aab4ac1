"""How full nodes are: amounts that are short, scores of usage, and resources that devices back."""
