"""Answer what kube-scheduler was recorded to answer: scenarios and configurations."""
