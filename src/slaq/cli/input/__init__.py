"""What users type and the files they name, read and checked for the verbs."""
