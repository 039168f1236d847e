"""What the bridge needs of a TORQUE server, in TORQUE's words."""
