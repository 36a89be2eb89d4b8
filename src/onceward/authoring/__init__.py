"""What users write with: decorators, the context, triggers."""
