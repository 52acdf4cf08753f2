"""The verifier: checks a release from the printed table alone; imports nothing that made it."""
