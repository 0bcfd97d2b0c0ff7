"""The waiting ledger: on what each GPU of a job spends its time."""
