"""The emulated cluster behind OpenPBS's wire (protocol document of OpenPBS; section numbers are its)."""
