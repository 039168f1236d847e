"""The emulated cluster with OpenPBS's wire protocol (section numbers are of OpenPBS's protocol document)."""
