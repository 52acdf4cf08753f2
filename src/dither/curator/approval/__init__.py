"""What waits for the owner: approvals, and what the owner sees beside a request."""
