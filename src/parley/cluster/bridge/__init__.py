"""Requests and connections of a gateway, served by a host on the other side of the bus."""
