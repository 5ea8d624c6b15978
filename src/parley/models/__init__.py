"""Model backends behind one interface: a request in, Messages API stream events out."""
