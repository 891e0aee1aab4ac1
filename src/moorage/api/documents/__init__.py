"""Objects as documents: the kinds that are served and their fields, records of objects, statuses, requests and users."""
