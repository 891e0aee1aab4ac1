"""The CAs that sign client certificates: from files or published by the cluster; read again every minute.

Source  apiserver/pkg/server/options/authentication.go, ApplyTo
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final

from cryptography import x509

from moorage.basis.files import read_file
from moorage.errors import ClusterError, InputError
from moorage.live.runtime.attempt_metrics import Log
from moorage.live.server.authentication import FrontProxies, RequestAuthenticator
from moorage.live.server.authorization import Delegate, read_lookup
from moorage.live.server.certificates import ServingTls, authorities

_EVERY_S: Final = 60.0
_MAP: Final = "configmap/extension-apiserver-authentication in kube-system"


@dataclass(frozen=True, slots=True)
class ClientCaRules:
    """The flags for client CAs. ``skip_lookup``: do not read the cluster's; ``tolerant``: start even if that fails."""

    client_ca_file: str = ""
    proxy_ca_file: str = ""
    proxies: FrontProxies = field(default_factory=FrontProxies)
    skip_lookup: bool = False
    tolerant: bool = True


class ClientCas:
    """Keeps the CAs of ``authenticator`` and ``tls`` up to date. ``delegate`` None: there is no cluster to read them from."""

    def __init__(
        self, rules: ClientCaRules, delegate: Delegate | None, authenticator: RequestAuthenticator, tls: ServingTls, log: Log
    ) -> None:
        self._rules, self._delegate, self._authenticator, self._tls, self._log = rules, delegate, authenticator, tls, log
        self._published: dict[str, str] = {}

    async def start(self) -> None:
        """Load the CAs for the first time.

        Raises  InputError for unusable files, or if the cluster's configuration cannot be read and must be
        """
        await self._look_up(starting=True)
        self._apply()

    async def run(self) -> None:
        """Refresh the CAs until cancelled; retry after failures."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Read everything again, certificates included."""
        await self._look_up(starting=False)
        try:
            if self._tls.reload():
                self._log.info(0, "Reloaded the serving certificates")
            self._apply()
        except InputError as error:
            self._log.error(error, "Certificates could not be reloaded; the previous ones stay in use")

    async def _look_up(self, *, starting: bool) -> None:
        rules = self._rules
        if rules.skip_lookup or (rules.client_ca_file and rules.proxy_ca_file):
            return
        if self._delegate is None:
            if starting:
                why = "No authentication-kubeconfig provided in order to lookup"
                if not self._rules.client_ca_file:
                    self._log.warning(f"{why} client-ca-file in {_MAP}, so client certificate authentication won't work.")
                if not self._rules.proxy_ca_file:
                    lost = "so request-header client certificate authentication won't work."
                    self._log.warning(f"{why} requestheader-client-ca-file in {_MAP}, {lost}")
            return
        try:
            self._published = await self._delegate.lookup()
        except (ClusterError, ValueError) as error:
            if not starting:
                self._log.error(error, "Error looking up in-cluster authentication configuration")
            elif not rules.tolerant:
                raise InputError(f"unable to load configmap based request-header-client-ca-file: {error}") from None
            else:
                self._log.warning(f"Error looking up in-cluster authentication configuration: {error}")
                self._log.warning("Continuing without authentication configuration. This may treat all requests as anonymous.")
                flag = "--authentication-tolerate-lookup-failure=false"
                self._log.warning(f"To require authentication configuration lookup to succeed, set {flag}")

    def _apply(self) -> None:
        rules, published = self._rules, self._published
        clients, client_pem = self._bundle(rules.client_ca_file, "client-ca-file")
        fronts, front_pem = self._bundle(rules.proxy_ca_file, "requestheader-client-ca-file")
        proxies = rules.proxies
        if not rules.proxy_ca_file:
            proxies = FrontProxies.read(lambda name: read_lookup(published, name))
        self._tls.trust("\n".join(filter(None, dict.fromkeys([client_pem, front_pem]))))
        self._authenticator.authorities = clients
        self._authenticator.proxies = replace(proxies, authorities=fronts)

    def _bundle(self, file: str, published: str) -> tuple[tuple[x509.Certificate, ...], str]:
        if file:
            pem = read_file(file)
            return authorities(pem, file), pem.decode("utf-8", "replace")
        text = self._published.get(published, "")
        return (authorities(text.encode(), f"{published} of {_MAP}"), text) if text.strip() else ((), "")
