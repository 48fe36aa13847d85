"""The dashboard: pages for a person who wants to see what is wrong, and mend it."""
