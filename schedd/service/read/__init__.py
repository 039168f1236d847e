"""What is read from publications and the database: jobs, nodes, gaps, the past, and who may see what."""
