"""The interface of training programs: their options, data, context and share."""
