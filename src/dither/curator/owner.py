"""The name of the owner, apart from the rest of the curator, so that a command that needs a name loads nothing else."""

# bound by the dataset's budget alone
OWNER = "owner"
