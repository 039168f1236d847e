"""The bridge between a PBS server and schedd: speaks the server's wire protocol, owns no policy."""
