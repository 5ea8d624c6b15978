"""What the console asks the server for."""
