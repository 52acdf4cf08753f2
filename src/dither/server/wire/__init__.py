"""What leaves the server: the forms of responses, and what writes them."""
