"""The controller: takes FAILED Kubernetes nodes out of use within a budget, and gives them back."""
