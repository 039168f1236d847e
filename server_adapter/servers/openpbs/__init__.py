"""What the bridge needs of an OpenPBS server, in OpenPBS's words."""
