"""What the tables of a lake are made of: each a function from DataFrames to a DataFrame."""
