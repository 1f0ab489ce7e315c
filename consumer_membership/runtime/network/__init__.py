"""The membership thread's side of the line: the loop, the sockets, and what is asked of brokers over them."""
