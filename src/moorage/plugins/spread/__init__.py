"""What PodTopologySpread counts, scores, explains and suggests."""
