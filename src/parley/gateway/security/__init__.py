"""Who may do what: tokens, scopes, quotas, and the record of it."""
