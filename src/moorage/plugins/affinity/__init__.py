"""What InterPodAffinity and NodeAffinity count, score, explain and suggest."""
