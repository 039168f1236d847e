"""Common wire layer of both families: codes, requests, replies, connections, errors, sockets."""
