"""What an operator of a cluster uses: its status, moving shards, metrics of a host, and a demo on one machine."""
