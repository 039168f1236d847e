"""The features of schedd, each in a folder of its own: see ``schedd/feature_list.py``."""
