"""njax: an inference engine for hybrid language models with cross-request prefix seeding."""

__version__ = "0.1.0"
