"""What goes out by itself: notices to users, webhooks."""
