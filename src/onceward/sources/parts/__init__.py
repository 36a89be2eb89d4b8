"""What sources are put together from: secrets, signatures, forms, fields, replies; no provider's own."""
