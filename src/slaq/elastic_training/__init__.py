"""Elastic training with PyTorch: a loop whose updates are computed by as many workers as the job holds now."""

from slaq.core.extras import needs

with needs("torch"):
    from slaq.elastic_training.loop import ElasticTraining
    from slaq.elastic_training.start import elastic
from slaq.elastic_training.update import Update

__all__ = ["ElasticTraining", "Update", "elastic"]
