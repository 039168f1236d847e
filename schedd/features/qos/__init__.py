"""Quality of service (QOS): named levels with access, priority, limits and price, which jobs request."""
