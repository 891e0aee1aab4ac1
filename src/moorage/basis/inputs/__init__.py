"""Read files of Kubernetes objects: manifests, dumps and directories, compressed or not, as YAML or JSON."""
