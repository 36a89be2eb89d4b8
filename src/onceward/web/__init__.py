"""The HTTP side: the receiver of deliveries."""
