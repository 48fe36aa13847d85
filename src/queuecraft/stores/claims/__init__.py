"""Who is at work on what, and what is done already: for handling and publishing things once."""
