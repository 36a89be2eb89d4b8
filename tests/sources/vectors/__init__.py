"""Certificates and deliveries that vendors published with their libraries."""
