"""A gateway without state: it authenticates clients and passes their requests on to the hosts of a cluster."""
