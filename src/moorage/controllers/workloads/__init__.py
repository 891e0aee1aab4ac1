"""What makes pods and keeps so many of them: deployments, sets, jobs, and the budgets over them."""
