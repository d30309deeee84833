"""How findings look: pages, pictures and words. Nothing here knows of federated learning."""
