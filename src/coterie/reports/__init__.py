"""The look of findings: pages, pictures, Markdown and words. Nothing here knows of federated learning."""
