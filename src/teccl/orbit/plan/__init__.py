"""Planning in the quotient: every orbit of links is one resource, one chunk an orbit is placed."""
