"""The membership thread's side of the line: the loop, the sockets, and the requests to brokers."""
