sleep 1800
