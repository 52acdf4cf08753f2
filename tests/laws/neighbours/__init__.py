"""Random tables and questions, and what one unit may move of their exact cells."""
