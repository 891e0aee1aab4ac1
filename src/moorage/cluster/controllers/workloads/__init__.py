"""Controllers that create pods and keep their number: deployments, sets and jobs; and disruption budgets."""
