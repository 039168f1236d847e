"""What the batch protocols of both families share: errors, layout of requests, sockets, objects."""
