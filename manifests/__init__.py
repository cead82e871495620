"""What is wanted: manifests read strictly, checked all at once and resolved into one frozen value."""
