"""Types shared by the whole server: kinds, records, versions, requests, users and errors."""
