"""The name of the owner, apart from the rest of the curator, so that whoever needs a name loads nothing else."""

# The name under which the owner of the data asks; bound by the dataset's budget alone.
OWNER = "owner"
