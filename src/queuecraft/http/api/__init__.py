"""What an operator sees and does over HTTP: the pages below `/api`, one module for each noun."""
