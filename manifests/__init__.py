"""The desired state: manifests read strictly, checked all at once and resolved into one frozen value."""
