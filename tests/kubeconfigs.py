"""Write kubeconfigs with a token for servers that tests start."""

import base64
import json

from moorage.basis.files import put_file


def write_kubeconfig(path, port, token, authority=b"", name="moorage"):
    """Write a kubeconfig that only its owner can read. It is JSON, which is also valid YAML.

    ``authority`` is the CA certificate in PEM that verifies the server; without one the server speaks plain HTTP.
    """
    cluster = {"server": f"http{'s' if authority else ''}://127.0.0.1:{port}"}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": name, "preferences": {},
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [{"name": name, "user": {"token": token}}],
    }  # fmt: skip
    put_file(path, json.dumps(config, indent=2).encode() + b"\n")
