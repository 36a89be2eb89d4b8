"""Two RSA keys for every test of signatures: each takes a twentieth of a second to make."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import rsa

KEY = rsa.generate_private_key(65537, 2048)
STRANGER = rsa.generate_private_key(65537, 2048)
