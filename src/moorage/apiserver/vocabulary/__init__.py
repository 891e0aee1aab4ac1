"""The words that the rest of the server speaks in: kinds, records, versions, requests, users, and refusals."""
