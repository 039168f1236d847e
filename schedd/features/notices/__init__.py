"""Notices by mail or a site's command about moved and near starts, lost deadlines, and walltimes."""
